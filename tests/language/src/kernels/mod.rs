//! One kernel for each construct. Each thread computes a checksum from a seed of its own. The test
//! calls the same function on the host and compares.

mod dynamic;
mod library;
mod recursion;
mod sort;

pub use dynamic::{evaluate, pointers};
pub use library::{called, compared, wide};
pub use recursion::{mutual, tree};
pub use sort::sorted;

use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

warpheap_device::global_heap!();

/// SplitMix64: the number after `state`.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A checksum that depends on the order of the numbers.
fn checksum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(1, |sum, number| (sum ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(29))
}

/// What the kernel `language_library` computes, by its `kind`.
pub const LIBRARY: [fn(u32, u64) -> u64; 3] = [compared, called, wide];

/// Writes the result of thread `i` for `out[i]`.
fn write(out: DeviceSlice<u64>, result: impl FnOnce(u64) -> u64) {
    let i = u64::from(thread::index_1d());
    if i < out.len() {
        // SAFETY: each thread writes its own element, which is in bounds.
        unsafe { out.set(i, result(i)) };
    }
}

kernel! {
    /// [`sorted`] of `count` numbers, by the algorithm `kind`.
    ///
    /// # Safety
    /// `out` is live, and only this kernel accesses it.
    pub unsafe fn language_sort(kind: u32, count: u32, out: DeviceSlice<u64>) {
        write(out, |i| sorted(kind, count, i));
    }

    /// [`evaluate`] of a tree of trait objects with about `size` nodes.
    ///
    /// # Safety
    /// `out` is live, and only this kernel accesses it.
    pub unsafe fn language_dyn(size: u32, out: DeviceSlice<u64>) {
        write(out, |i| evaluate(size, i));
    }

    /// [`pointers`] of `steps` steps.
    ///
    /// # Safety
    /// `out` is live, and only this kernel accesses it.
    pub unsafe fn language_pointers(steps: u32, out: DeviceSlice<u64>) {
        write(out, |i| pointers(steps, i));
    }

    /// [`mutual`] recursion of `depth` levels.
    ///
    /// # Safety
    /// `out` is live, and only this kernel accesses it.
    pub unsafe fn language_mutual(depth: u32, out: DeviceSlice<u64>) {
        write(out, |i| mutual(depth, i));
    }

    /// [`compared`], [`called`] or [`wide`], by `kind`, for `count`.
    ///
    /// # Safety
    /// `out` is live, and only this kernel accesses it.
    pub unsafe fn language_library(kind: u32, count: u32, out: DeviceSlice<u64>) {
        write(out, |i| LIBRARY[kind as usize % LIBRARY.len()](count, i));
    }

    /// [`tree`] of `count` numbers.
    ///
    /// # Safety
    /// `out` is live, and only this kernel accesses it.
    pub unsafe fn language_tree(count: u32, out: DeviceSlice<u64>) {
        write(out, |i| tree(count, i));
    }
}
