//! Static shared arrays and the instructions on them. An address is an offset in the block's shared
//! memory.

use super::{SharedMemory, WORD_BYTES};
use core::arch::asm;

pub type Address = u32;

/// Not inlined: every inlined copy of the declaration would be a separate array.
#[inline(never)]
pub fn first<M: SharedMemory>() -> Address {
    let address: u32;
    // SAFETY: the assembly declares memory and takes its address.
    unsafe {
        asm!("{{ .shared .align 8 .b64 piece[{words}]; mov.u32 {address}, piece; }}",
            words = const M::WORDS, address = out(reg32) address, options(nostack));
    }
    address
}

#[inline(always)]
pub fn plus(address: Address, words: u32) -> Address {
    address + words * WORD_BYTES
}

#[inline(always)]
pub fn minus(address: Address, words: u32) -> Address {
    address - words * WORD_BYTES
}

#[inline(always)]
pub unsafe fn load_relaxed(address: Address) -> u64 {
    let v: u64;
    // SAFETY: the word is inside a live piece, by the caller's promise.
    unsafe { asm!("ld.relaxed.cta.shared.u64 {}, [{}];", out(reg64) v, in(reg32) address, options(nostack)) }
    v
}

#[inline(always)]
pub unsafe fn store_relaxed(address: Address, v: u64) {
    // SAFETY: the word is inside a live piece, by the caller's promise.
    unsafe { asm!("st.relaxed.cta.shared.u64 [{}], {};", in(reg32) address, in(reg64) v, options(nostack)) }
}

macro_rules! exchanges {
    ($($name:ident $op:literal;)+) => {$(
        #[inline(always)]
        pub unsafe fn $name(address: Address, v: u64) -> u64 {
            let old: u64;
            // SAFETY: the word is inside a live piece, by the caller's promise.
            unsafe {
                asm!(concat!("atom.relaxed.cta.shared.", $op, ".b64 {}, [{}], {};"),
                    out(reg64) old, in(reg32) address, in(reg64) v, options(nostack));
            }
            old
        }
    )+};
}

exchanges! { or_relaxed "or"; and_relaxed "and"; swap_relaxed "exch"; }
