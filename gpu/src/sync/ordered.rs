// The code that core's and loom's atomics share: turns an `Ordering` parameter into method names.

/// One method in its four orderings.
macro_rules! rmw {
    ($int:ty, $($method:ident: $relaxed:ident $acquire:ident $release:ident $acq_rel:ident;)+) => {
        rmw! { @ $int, $($relaxed $method Relaxed; $acquire $method Acquire;
            $release $method Release; $acq_rel $method AcqRel;)+ }
    };
    (@ $int:ty, $($name:ident $method:ident $order:ident;)+) => {$(
        #[inline(always)]
        pub fn $name(&self, v: $int) -> $int {
            machine::step();
            self.0.$method(v, Ordering::$order)
        }
    )+};
}

/// One compare-and-swap, in the orderings of its success and its failure.
macro_rules! cas {
    ($int:ty, $($name:ident $success:ident $failure:ident;)+) => {$(
        #[inline(always)]
        pub fn $name(&self, old: $int, new: $int) -> Result<$int, $int> {
            machine::step();
            self.0.compare_exchange(old, new, Ordering::$success, Ordering::$failure)
        }
    )+};
}

macro_rules! cell {
    ($name:ident, $cell:ty, $int:ty) => {
        #[repr(transparent)]
        pub struct $name($cell);

        impl $name {
            pub fn new(v: $int) -> Self {
                Self(<$cell>::new(v))
            }
            #[inline(always)]
            pub fn load_relaxed(&self) -> $int {
                machine::step();
                self.0.load(Ordering::Relaxed)
            }
            #[inline(always)]
            pub fn load_unraced(&self) -> $int {
                self.0.load(Ordering::Relaxed)
            }
            #[inline(always)]
            pub fn load_acquire(&self) -> $int {
                machine::step();
                self.0.load(Ordering::Acquire)
            }
            #[inline(always)]
            pub fn store_relaxed(&self, v: $int) {
                machine::step();
                self.0.store(v, Ordering::Relaxed)
            }
            #[inline(always)]
            pub fn store_release(&self, v: $int) {
                machine::step();
                self.0.store(v, Ordering::Release)
            }
            rmw! { $int,
                fetch_add: add_relaxed add_acquire add_release add_acq_rel;
                fetch_sub: sub_relaxed sub_acquire sub_release sub_acq_rel;
                fetch_and: and_relaxed and_acquire and_release and_acq_rel;
                fetch_or: or_relaxed or_acquire or_release or_acq_rel;
                fetch_xor: xor_relaxed xor_acquire xor_release xor_acq_rel;
                fetch_max: max_relaxed max_acquire max_release max_acq_rel;
                fetch_min: min_relaxed min_acquire min_release min_acq_rel;
                swap: swap_relaxed swap_acquire swap_release swap_acq_rel;
            }
            cas! { $int,
                cas_relaxed Relaxed Relaxed;
                cas_acquire Acquire Acquire;
                cas_release Release Relaxed;
                cas_acq_rel AcqRel Acquire;
            }
        }
    };
}

// A scope is only a name here.
cell! { GpuU32, atomic::AtomicU32, u32 }
cell! { GpuU64, atomic::AtomicU64, u64 }
cell! { BlockU32, atomic::AtomicU32, u32 }
cell! { BlockU64, atomic::AtomicU64, u64 }
cell! { SystemU32, atomic::AtomicU32, u32 }
cell! { SystemU64, atomic::AtomicU64, u64 }

/// ThreadSanitizer does not know fences. It sees each as a read-modify-write of this word, which is
/// at least as strong: the later one of two fences acquires what the earlier one released.
#[cfg(tsan)]
static FENCES: atomic::AtomicU32 = atomic::AtomicU32::new(0);

macro_rules! fences {
    ($($name:ident $order:ident;)+) => {$(
        #[inline(always)]
        pub fn $name() {
            #[cfg(not(tsan))]
            atomic::fence(Ordering::$order);
            #[cfg(tsan)]
            FENCES.fetch_add(0, Ordering::AcqRel);
        }
    )+};
}

fences! {
    fence_acquire Acquire;
    fence_release Release;
    fence_acq_rel AcqRel;
    fence_seq_cst SeqCst;
    block_fence_acq_rel AcqRel;
    system_fence_acq_rel AcqRel;
    system_fence_seq_cst SeqCst;
}

macro_rules! unowned {
    ($($int:ty: $peek:ident $poke:ident;)+) => {$(
        #[inline(always)]
        pub unsafe fn $peek(place: *const $int) -> $int {
            // SAFETY: the caller promises live, aligned memory.
            unsafe { place.read_volatile() }
        }

        #[inline(always)]
        pub unsafe fn $poke(place: *mut $int, value: $int) {
            // SAFETY: the caller promises live, aligned memory.
            unsafe { place.write_volatile(value) }
        }
    )+};
}

unowned! {
    u64: peek_u64 poke_u64;
    u8: peek_u8 poke_u8;
}

/// Reads two words, one after the other.
#[inline(always)]
pub unsafe fn load_two_relaxed(first: &GpuU32, second: &GpuU32) -> [u32; 2] {
    [first.load_relaxed(), second.load_relaxed()]
}
