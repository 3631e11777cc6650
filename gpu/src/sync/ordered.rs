// The code that core's and loom's atomics share: turns an `Ordering` parameter into method names.

macro_rules! rmw {
    ($int:ty, $($name:ident $method:ident $order:ident;)+) => {$(
        #[inline(always)]
        pub fn $name(&self, v: $int) -> $int {
            machine::step();
            self.0.$method(v, Ordering::$order)
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
                add_relaxed fetch_add Relaxed; add_acquire fetch_add Acquire;
                add_release fetch_add Release; add_acq_rel fetch_add AcqRel;
                sub_relaxed fetch_sub Relaxed; sub_acquire fetch_sub Acquire;
                sub_release fetch_sub Release; sub_acq_rel fetch_sub AcqRel;
                and_relaxed fetch_and Relaxed; and_acquire fetch_and Acquire;
                and_release fetch_and Release; and_acq_rel fetch_and AcqRel;
                or_relaxed fetch_or Relaxed; or_acquire fetch_or Acquire;
                or_release fetch_or Release; or_acq_rel fetch_or AcqRel;
                xor_relaxed fetch_xor Relaxed; xor_acquire fetch_xor Acquire;
                xor_release fetch_xor Release; xor_acq_rel fetch_xor AcqRel;
                max_relaxed fetch_max Relaxed; max_acquire fetch_max Acquire;
                max_release fetch_max Release; max_acq_rel fetch_max AcqRel;
                min_relaxed fetch_min Relaxed; min_acquire fetch_min Acquire;
                min_release fetch_min Release; min_acq_rel fetch_min AcqRel;
                swap_relaxed swap Relaxed; swap_acquire swap Acquire;
                swap_release swap Release; swap_acq_rel swap AcqRel;
            }
            #[inline(always)]
            pub fn cas_relaxed(&self, old: $int, new: $int) -> Result<$int, $int> {
                machine::step();
                self.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
            }
            #[inline(always)]
            pub fn cas_acquire(&self, old: $int, new: $int) -> Result<$int, $int> {
                machine::step();
                self.0.compare_exchange(old, new, Ordering::Acquire, Ordering::Acquire)
            }
            #[inline(always)]
            pub fn cas_release(&self, old: $int, new: $int) -> Result<$int, $int> {
                machine::step();
                self.0.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed)
            }
            #[inline(always)]
            pub fn cas_acq_rel(&self, old: $int, new: $int) -> Result<$int, $int> {
                machine::step();
                self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
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

macro_rules! fences {
    ($($name:ident $order:ident;)+) => {$(
        #[inline(always)]
        pub fn $name() {
            fence(Ordering::$order)
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

pub fn load_quad<const N: usize>(words: &[GpuU32; N]) -> [u32; N] {
    words.each_ref().map(GpuU32::load_relaxed)
}

pub fn clear_quad<const N: usize>(words: &[GpuU32; N]) {
    // A swap instead of a store: with a store, loom would let read-modify-writes of other threads
    // ignore the new value.
    words.iter().for_each(|word| {
        word.swap_relaxed(0);
    });
}
