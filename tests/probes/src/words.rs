//! Atomics: six types, every operation in every ordering; and fences.

use crate::probe;
use warpheap_device::sync::{
    AtomicU32, AtomicU64, BlockAtomicU32, BlockAtomicU64, Site, SystemAtomicU32, SystemAtomicU64,
    load_two_relaxed,
};

const SITE: Site = Site::new("probe");

/// Operations on a word that take `arguments` and return the old value.
macro_rules! exchanges {
    ($word:ident $int:ty; $($relaxed:ident $($ordered:ident)+;)+) => {$(
        probe! { $word $relaxed(word: *const $word, v: $int, out: *mut $int) {
            // SAFETY: the launch passes a live word.
            let word = unsafe { &*word };
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(word.$relaxed(v)) };
        } }
        $(probe! { $word $ordered(word: *const $word, v: $int, out: *mut $int) {
            // SAFETY: the launch passes a live word.
            let word = unsafe { &*word };
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(word.at(SITE).$ordered(v)) };
        } })+
    )+};
}

/// Compare-and-swap.
macro_rules! swaps {
    ($word:ident $int:ty; $($name:ident;)+) => {$(
        probe! { $word $name(word: *const $word, old: $int, new: $int, out: *mut $int) {
            // SAFETY: the launch passes a live word.
            let word = unsafe { &*word };
            let (Ok(found) | Err(found)) = word.$name(old, new);
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(found) };
        } }
    )+};
}

macro_rules! accesses {
    ($word:ident $int:ty; $($load:ident $store:ident;)+) => {$(
        probe! { $word $load(word: *const $word, out: *mut $int) {
            // SAFETY: the launch passes a live word.
            let word = unsafe { &*word };
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(word.$load()) };
        } }
        probe! { $word $store(word: *const $word, v: $int) {
            // SAFETY: the launch passes a live word.
            let word = unsafe { &*word };
            word.$store(v);
        } }
    )+};
}

macro_rules! words {
    ($($word:ident $int:ty;)+) => {$(
        probe! { $word load_unraced(word: *const $word, out: *mut $int) {
            // SAFETY: the launch passes a live word.
            let word = unsafe { &*word };
            // SAFETY: no thread writes to it.
            let value = unsafe { word.load_unraced() };
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(value) };
        } }
        accesses! { $word $int; load_relaxed store_relaxed; load_acquire store_release; }
        exchanges! { $word $int;
            add_relaxed add_acquire add_release add_acq_rel;
            sub_relaxed sub_acquire sub_release sub_acq_rel;
            and_relaxed and_acquire and_release and_acq_rel;
            or_relaxed or_acquire or_release or_acq_rel;
            xor_relaxed xor_acquire xor_release xor_acq_rel;
            max_relaxed max_acquire max_release max_acq_rel;
            min_relaxed min_acquire min_release min_acq_rel;
            swap_relaxed swap_acquire swap_release swap_acq_rel;
        }
        swaps! { $word $int; cas_relaxed; cas_acquire; cas_release; cas_acq_rel; }
    )+};
}

words! {
    AtomicU32 u32;
    AtomicU64 u64;
    BlockAtomicU32 u32;
    BlockAtomicU64 u64;
    SystemAtomicU32 u32;
    SystemAtomicU64 u64;
}

macro_rules! fences {
    ($($name:ident)+) => {$(
        probe! { sync $name() { SITE.$name() } }
    )+};
}

fences! {
    fence_acquire fence_release fence_acq_rel fence_seq_cst block_fence_acq_rel system_fence_acq_rel
    system_fence_seq_cst
}

probe! { sync load_two_relaxed(words: *const [AtomicU32; 2], out: *mut [u32; 2]) {
    // SAFETY: the launch passes two live words, aligned to 8 bytes.
    let [first, second] = unsafe { &*words };
    // SAFETY: `second` is directly behind `first`.
    let two = unsafe { load_two_relaxed(first, second) };
    // SAFETY: the launch passes room for the result.
    unsafe { out.write(two) };
} }
