//! The PTX of each operation, one instruction each. `tests/ptx/opcodes.rs` compares the opcodes
//! that the compiler emits with the names of these functions.

use core::arch::asm;
use core::cell::UnsafeCell;

/// One read-modify-write in its four orderings.
macro_rules! rmw {
    ($scope:literal $int:ty, $ty:literal, $reg:ident,
        $($op:literal: $relaxed:ident $acquire:ident $release:ident $acq_rel:ident;)+) => {
        rmw! { @ $scope $int, $ty, $reg, $($relaxed "relaxed" $op; $acquire "acquire" $op;
            $release "release" $op; $acq_rel "acq_rel" $op;)+ }
    };
    (@ $scope:literal $int:ty, $ty:literal, $reg:ident, $($name:ident $order:literal $op:literal;)+) => {$(
        #[inline(always)]
        pub fn $name(&self, v: $int) -> $int {
            let old: $int;
            // SAFETY: the word is live global memory for as long as `self` is borrowed, and only
            // this instruction accesses it here.
            unsafe {
                asm!(concat!("atom.", $order, ".", $scope, ".global.", $op, $ty, " {}, [{}], {};"),
                    out($reg) old, in(reg64) self.0.get(), in($reg) v, options(nostack));
            }
            old
        }
    )+};
}

macro_rules! sub {
    ($int:ty, $($name:ident = $add:ident;)+) => {$(
        #[inline(always)]
        pub fn $name(&self, v: $int) -> $int {
            self.$add(v.wrapping_neg())
        }
    )+};
}

macro_rules! cas {
    ($scope:literal $int:ty, $ty:literal, $reg:ident, $($name:ident $order:literal;)+) => {$(
        #[inline(always)]
        pub fn $name(&self, old: $int, new: $int) -> Result<$int, $int> {
            let found: $int;
            // SAFETY: as for `rmw!`: live global memory for as long as `self` is borrowed.
            unsafe {
                asm!(concat!("atom.", $order, ".", $scope, ".global.cas.b", $ty, " {}, [{}], {}, {};"),
                    out($reg) found, in(reg64) self.0.get(), in($reg) old, in($reg) new, options(nostack));
            }
            if found == old { Ok(found) } else { Err(found) }
        }
    )+};
}

macro_rules! load {
    ($scope:literal $int:ty, $ty:literal, $reg:ident, $($name:ident $order:literal;)+) => {$(
        #[inline(always)]
        pub fn $name(&self) -> $int {
            let v: $int;
            // SAFETY: the word is live global memory for as long as `self` is borrowed.
            unsafe {
                asm!(concat!("ld.", $order, ".", $scope, ".global.u", $ty, " {}, [{}];"),
                    out($reg) v, in(reg64) self.0.get(), options(nostack));
            }
            v
        }
    )+};
}

macro_rules! store {
    ($scope:literal $int:ty, $ty:literal, $reg:ident, $($name:ident $order:literal;)+) => {$(
        #[inline(always)]
        pub fn $name(&self, v: $int) {
            // SAFETY: the word is live global memory for as long as `self` is borrowed.
            unsafe {
                asm!(concat!("st.", $order, ".", $scope, ".global.u", $ty, " [{}], {};"),
                    in(reg64) self.0.get(), in($reg) v, options(nostack));
            }
        }
    )+};
}

macro_rules! cell {
    ($name:ident, $scope:literal, $int:ty, $bits:literal, $reg:ident) => {
        #[repr(transparent)]
        pub struct $name(UnsafeCell<$int>);
        // SAFETY: every access is one atomic instruction.
        unsafe impl Sync for $name {}
        // SAFETY: it owns nothing that is bound to a thread.
        unsafe impl Send for $name {}

        impl $name {
            pub const fn new(v: $int) -> Self {
                Self(UnsafeCell::new(v))
            }
            load! { $scope $int, $bits, $reg, load_relaxed "relaxed"; load_acquire "acquire"; }
            #[inline(always)]
            pub fn load_unraced(&self) -> $int {
                let v: $int;
                // SAFETY: the word is live global memory for as long as `self` is borrowed.
                unsafe {
                    asm!(concat!("ld.weak.global.u", $bits, " {}, [{}];"),
                        out($reg) v, in(reg64) self.0.get(), options(nostack));
                }
                v
            }
            store! { $scope $int, $bits, $reg, store_relaxed "relaxed"; store_release "release"; }
            rmw! { $scope $int, $bits, $reg,
                "add.u": add_relaxed add_acquire add_release add_acq_rel;
                "and.b": and_relaxed and_acquire and_release and_acq_rel;
                "or.b": or_relaxed or_acquire or_release or_acq_rel;
                "xor.b": xor_relaxed xor_acquire xor_release xor_acq_rel;
                "max.u": max_relaxed max_acquire max_release max_acq_rel;
                "min.u": min_relaxed min_acquire min_release min_acq_rel;
                "exch.b": swap_relaxed swap_acquire swap_release swap_acq_rel;
            }
            sub! { $int, sub_relaxed = add_relaxed; sub_acquire = add_acquire;
            sub_release = add_release; sub_acq_rel = add_acq_rel; }
            cas! { $scope $int, $bits, $reg, cas_relaxed "relaxed"; cas_acquire "acquire";
            cas_release "release"; cas_acq_rel "acq_rel"; }
        }
    };
}

cell! { GpuU32, "gpu", u32, "32", reg32 }
cell! { GpuU64, "gpu", u64, "64", reg64 }
cell! { BlockU32, "cta", u32, "32", reg32 }
cell! { BlockU64, "cta", u64, "64", reg64 }
cell! { SystemU32, "sys", u32, "32", reg32 }
cell! { SystemU64, "sys", u64, "64", reg64 }

macro_rules! fence {
    ($($name:ident $text:literal;)+) => {$(
        #[inline(always)]
        pub fn $name() {
            // SAFETY: a fence accesses no memory.
            unsafe { asm!($text, options(nostack)) }
        }
    )+};
}

fence! {
    fence_acquire "fence.acq_rel.gpu;";
    fence_release "fence.acq_rel.gpu;";
    fence_acq_rel "fence.acq_rel.gpu;";
    fence_seq_cst "fence.sc.gpu;";
    block_fence_acq_rel "fence.acq_rel.cta;";
    system_fence_acq_rel "fence.acq_rel.sys;";
    system_fence_seq_cst "fence.sc.sys;";
}

/// Reads a word and the one behind it.
#[inline(always)]
pub unsafe fn load_two_relaxed(first: &GpuU32, _second: &GpuU32) -> [u32; 2] {
    let (a, b): (u32, u32);
    // SAFETY: two words of live global memory, one behind the other and aligned to both, by the
    // caller's promise.
    unsafe {
        asm!("ld.relaxed.gpu.global.v2.u32 {{{}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, in(reg64) first.0.get(), options(nostack));
    }
    [a, b]
}

macro_rules! unowned {
    ($($int:ty as $wide:ty, $ty:literal, $reg:ident: $peek:ident $poke:ident;)+) => {$(
        #[inline(always)]
        pub unsafe fn $peek(place: *const $int) -> $int {
            let v: $wide;
            // SAFETY: the caller promises live, aligned global memory.
            unsafe {
                asm!(concat!("ld.relaxed.gpu.global.u", $ty, " {}, [{}];"),
                    out($reg) v, in(reg64) place, options(nostack));
            }
            v as $int
        }

        #[inline(always)]
        pub unsafe fn $poke(place: *mut $int, value: $int) {
            // SAFETY: the caller promises live, aligned global memory.
            unsafe {
                asm!(concat!("st.relaxed.gpu.global.u", $ty, " [{}], {};"),
                    in(reg64) place, in($reg) value as $wide, options(nostack));
            }
        }
    )+};
}

unowned! {
    u64 as u64, "64", reg64: peek_u64 poke_u64;
    u8 as u16, "8", reg16: peek_u8 poke_u8;
}
