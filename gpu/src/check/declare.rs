//! The macro that declares stress kernels for an allocator.

/// Declares stress kernels for an allocator: one entry point per function of this module and per
/// handle type.
///
/// | key | function | needed by a harness |
/// |---|---|---|
/// | `stress` | [`workload::run`] | always |
/// | `grab` | [`census::grab`] | always |
/// | `give_back` | [`census::give_back`] | always |
/// | `exchange` | [`exchange::run`] | if threads exchange blocks while kernels run |
/// | `free_twice` | [`misuse::free_twice`] | to inject a double free |
///
/// [`workload::run`]: crate::check::workload::run
/// [`census::grab`]: crate::check::census::grab
/// [`census::give_back`]: crate::check::census::give_back
/// [`exchange::run`]: crate::check::exchange::run
/// [`misuse::free_twice`]: crate::check::misuse::free_twice
///
/// `stress_kernels!(checks)` declares `overlap_claim`, `plant_lost_block` and `plant_torn_write`,
/// which do not depend on the allocator. Use it once per PTX module.
///
/// ```
/// use warpheap_device::freelist::FreeList;
///
/// warpheap_device::stress_kernels! {
///     FreeList { stress: stress_mine, grab: grab_mine, give_back: give_back_mine }
/// }
/// warpheap_device::stress_kernels!(checks);
/// ```
#[macro_export]
macro_rules! stress_kernels {
    (@stress $name:ident, $handle:ty) => {
        $crate::kernel! {
            /// Runs one stress round: see `check::workload::run`.
            ///
            /// # Safety
            /// As for `check::workload::run`.
            pub unsafe fn $name(
                pool: $handle,
                records: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                map: $crate::check::ownership::OwnershipMap,
                stripes: $crate::kernel::DeviceSlice<u64>,
                round: $crate::check::workload::Round,
            ) {
                // SAFETY: the caller upholds the contract of `workload::run`.
                unsafe { $crate::check::workload::run(&pool, records, &map, stripes, &round) }
            }
        }
    };
    (@exchange $name:ident, $handle:ty) => {
        $crate::kernel! {
            /// Exchanges blocks between threads: see `check::exchange::run`.
            ///
            /// # Safety
            /// As for `check::exchange::run`.
            pub unsafe fn $name(
                pool: $handle,
                records: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                map: $crate::check::ownership::OwnershipMap,
                stripes: $crate::kernel::DeviceSlice<u64>,
                cells: $crate::kernel::DeviceSlice<u64>,
                round: $crate::check::workload::Round,
            ) {
                // SAFETY: the caller upholds the contract of `exchange::run`.
                unsafe { $crate::check::exchange::run(&pool, records, &map, stripes, cells, &round) }
            }
        }
    };
    (@grab $name:ident, $handle:ty) => {
        $crate::kernel! {
            /// Allocates until the pool is out of memory: see `check::census::grab`.
            ///
            /// # Safety
            /// As for `check::census::grab`.
            pub unsafe fn $name(
                pool: $handle,
                bytes: u32,
                align: u32,
                out: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                count: $crate::kernel::DevicePtr<u64>,
            ) {
                let layout = $crate::__private::Layout::from_size_align(bytes as usize, align as usize);
                let layout = layout.unwrap_or($crate::__private::Layout::new::<u8>());
                // SAFETY: the caller promises that `count` is live and that nothing else accesses
                // it (`census::grab`). An atomic has the layout of its integer.
                let count = unsafe { &*count.0.cast::<$crate::sync::AtomicU64>() };
                // SAFETY: the caller upholds the contract of `census::grab`.
                unsafe { $crate::check::census::grab(&pool, layout, out, count) }
            }
        }
    };
    (@give_back $name:ident, $handle:ty) => {
        $crate::kernel! {
            /// Frees blocks: see `check::census::give_back`.
            ///
            /// # Safety
            /// As for `check::census::give_back`.
            pub unsafe fn $name(
                pool: $handle,
                records: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                count: u64,
            ) {
                // SAFETY: the caller upholds the contract of `census::give_back`.
                unsafe { $crate::check::census::give_back(&pool, records, count) }
            }
        }
    };
    (@free_twice $name:ident, $handle:ty) => {
        $crate::kernel! {
            /// Frees a block twice: see `check::misuse::free_twice`.
            ///
            /// # Safety
            /// As for `check::misuse::free_twice`.
            pub unsafe fn $name(
                pool: $handle,
                records: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                map: $crate::check::ownership::OwnershipMap,
                place: u32,
            ) {
                // SAFETY: the caller upholds the contract of `misuse::free_twice`.
                unsafe { $crate::check::misuse::free_twice(&pool, records, &map, place) }
            }
        }
    };
    (checks) => {
        $crate::kernel! {
            /// Finds overlapping blocks: see `check::census::overlap_claim`.
            ///
            /// # Safety
            /// As for `check::census::overlap_claim`.
            pub unsafe fn overlap_claim(
                records: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                map: $crate::check::ownership::OwnershipMap,
                marks: $crate::kernel::DeviceSlice<u32>,
            ) {
                // SAFETY: the caller upholds the contract of `census::overlap_claim`.
                unsafe { $crate::check::census::overlap_claim(records, &map, marks) }
            }

            /// Leaks a block: see `check::misuse::forget`.
            ///
            /// # Safety
            /// As for `check::misuse::forget`.
            pub unsafe fn plant_lost_block(
                records: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                map: $crate::check::ownership::OwnershipMap,
                place: u32,
            ) {
                // SAFETY: the caller upholds the contract of `misuse::forget`.
                unsafe { $crate::check::misuse::forget(records, &map, place) }
            }

            /// Writes past the end of a block: see `check::misuse::overrun`.
            ///
            /// # Safety
            /// As for `check::misuse::overrun`.
            pub unsafe fn plant_torn_write(
                records: $crate::kernel::DeviceSlice<$crate::check::record::Record>,
                place: u32,
                past: u32,
            ) {
                // SAFETY: the caller upholds the contract of `misuse::overrun`.
                unsafe { $crate::check::misuse::overrun(records, place, past) }
            }
        }
    };
    ($handle:ty { $($what:ident: $name:ident),+ $(,)? }) => {
        $($crate::stress_kernels!(@$what $name, $handle);)+
    };
}
