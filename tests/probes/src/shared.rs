//! Words in shared memory.

use crate::probe;
use warpheap_device::shared::{SharedMemory, SharedWord};

/// A piece of shared memory.
struct Piece;

impl SharedMemory for Piece {
    const WORDS: u32 = 4;
}

/// Operations that take `arguments`.
macro_rules! operations {
    ($($name:ident($($arg:ident: u64),*) -> $out:ty;)+) => {
        $(probe! { SharedWord $name(i: u32, $($arg: u64,)* out: *mut $out) {
            // SAFETY: the launch passes the index of a word of the piece.
            let result = unsafe { SharedWord::first::<Piece>().plus(i).$name($($arg),*) };
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(result) };
        } })+
    };
}

operations! {
    load_relaxed() -> u64;
    store_relaxed(v: u64) -> ();
    or_relaxed(v: u64) -> u64;
    and_relaxed(v: u64) -> u64;
    swap_relaxed(v: u64) -> u64;
}
