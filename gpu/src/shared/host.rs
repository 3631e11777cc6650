//! Shared memory on the host: the installed machine keeps one set of pieces per block. The lanes of
//! a block run on one OS thread, so plain memory is sufficient. Each access first lets the machine
//! run another lane.

use super::{SharedMemory, WORD_BYTES};
use crate::machine;
use core::any::TypeId;

pub type Address = *mut u64;

pub fn first<M: SharedMemory>() -> Address {
    let words = M::WORDS as usize;
    // SAFETY: the piece that the type names, which has as many words.
    unsafe { machine::with(|m| m.shared_memory(TypeId::of::<M>(), words)) }.as_ptr()
}

#[inline]
pub fn plus(address: Address, words: u32) -> Address {
    address.wrapping_byte_add((words * WORD_BYTES) as usize)
}

#[inline]
pub fn minus(address: Address, words: u32) -> Address {
    address.wrapping_byte_sub((words * WORD_BYTES) as usize)
}

#[inline]
pub unsafe fn load_relaxed(address: Address) -> u64 {
    machine::step();
    // SAFETY: the word is inside a live piece, by the caller's promise.
    unsafe { address.read() }
}

#[inline]
pub unsafe fn store_relaxed(address: Address, v: u64) {
    machine::step();
    // SAFETY: the word is inside a live piece, by the caller's promise.
    unsafe { address.write(v) }
}

macro_rules! exchanges {
    ($($name:ident $op:expr;)+) => {$(
        #[inline]
        pub unsafe fn $name(address: Address, v: u64) -> u64 {
            let change: fn(u64, u64) -> u64 = $op;
            machine::step();
            // SAFETY: the word is inside a live piece, by the caller's promise.
            let old = unsafe { address.read() };
            // SAFETY: the word that was read above.
            unsafe { address.write(change(old, v)) };
            old
        }
    )+};
}

exchanges! { or_relaxed |old, v| old | v; and_relaxed |old, v| old & v; swap_relaxed |_, v| v; }
