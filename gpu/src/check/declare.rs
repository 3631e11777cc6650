//! The macro that declares stress kernels for an allocator.

/// Declares stress kernels for an allocator: one entry point per function of this module and per
/// handle type.
///
/// | key | function | needed by a harness |
/// |---|---|---|
/// | `stress` | [`workload::run`] | always |
/// | `exhaust` | [`census::exhaust`] | always |
/// | `free_all` | [`census::free_all`] | always |
/// | `exchange` | [`exchange::run`] | if threads exchange blocks while kernels run |
/// | `free_twice` | [`misuse::free_twice`] | to inject a double free |
///
/// [`workload::run`]: crate::check::workload::run
/// [`census::exhaust`]: crate::check::census::exhaust
/// [`census::free_all`]: crate::check::census::free_all
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
///     FreeList { stress: stress_mine, exhaust: exhaust_mine, free_all: free_all_mine }
/// }
/// warpheap_device::stress_kernels!(checks);
/// ```
#[macro_export]
macro_rules! stress_kernels {
    (checks) => {
        $crate::stress_kernels! { @kernel overlap_claim = "census::overlap_claim":
            (records: $crate::check::Records, map: $crate::check::ownership::OwnershipMap, marks: $crate::kernel::DeviceSlice<u32>)
            $crate::check::census::overlap_claim(records, &map, marks)
        }
        $crate::stress_kernels! { @kernel plant_lost_block = "misuse::forget":
            (records: $crate::check::Records, map: $crate::check::ownership::OwnershipMap, place: u32)
            $crate::check::misuse::forget(records, &map, place)
        }
        $crate::stress_kernels! { @kernel plant_torn_write = "misuse::overrun":
            (records: $crate::check::Records, place: u32, past: u32)
            $crate::check::misuse::overrun(records, place, past)
        }
    };
    (@stress $name:ident, $handle:ty) => {
        $crate::stress_kernels! { @kernel $name = "workload::run":
            (
                pool: $handle,
                records: $crate::check::Records,
                map: $crate::check::ownership::OwnershipMap,
                stripes: $crate::kernel::DeviceSlice<u64>,
                round: $crate::check::workload::Round
            )
            $crate::check::workload::run(&pool, records, &map, stripes, &round)
        }
    };
    (@exchange $name:ident, $handle:ty) => {
        $crate::stress_kernels! { @kernel $name = "exchange::run":
            (
                pool: $handle,
                records: $crate::check::Records,
                map: $crate::check::ownership::OwnershipMap,
                stripes: $crate::kernel::DeviceSlice<u64>,
                cells: $crate::kernel::DeviceSlice<u64>,
                round: $crate::check::workload::Round
            )
            $crate::check::exchange::run(&pool, records, &map, stripes, cells, &round)
        }
    };
    (@exhaust $name:ident, $handle:ty) => {
        $crate::stress_kernels! { @kernel $name = "census::exhaust":
            (
                pool: $handle,
                bytes: u32,
                align: u32,
                out: $crate::check::Records,
                count: $crate::kernel::DevicePtr<u64>
            )
            $crate::check::census::exhaust(&pool, bytes, align, out, count)
        }
    };
    (@free_all $name:ident, $handle:ty) => {
        $crate::stress_kernels! { @kernel $name = "census::free_all":
            (pool: $handle, records: $crate::check::Records, count: u64)
            $crate::check::census::free_all(&pool, records, count)
        }
    };
    (@free_twice $name:ident, $handle:ty) => {
        $crate::stress_kernels! { @kernel $name = "misuse::free_twice":
            (pool: $handle, records: $crate::check::Records, map: $crate::check::ownership::OwnershipMap, place: u32)
            $crate::check::misuse::free_twice(&pool, records, &map, place)
        }
    };
    (@kernel $name:ident = $function:literal: ($($arg:ident: $ty:ty),*) $call:expr) => {
        $crate::kernel! {
            #[doc = $crate::__private::concat!("Calls `warpheap_device::check::", $function, "`.")]
            ///
            /// # Safety
            /// As for the called function.
            pub unsafe fn $name($($arg: $ty),*) {
                // SAFETY: the caller upholds the contract of the called function.
                unsafe { $call }
            }
        }
    };
    ($handle:ty { $($what:ident: $name:ident),+ $(,)? }) => {
        $($crate::stress_kernels!(@$what $name, $handle);)+
    };
}
