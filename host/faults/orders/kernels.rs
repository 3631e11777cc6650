//! Kernels that write and check a block.

use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;

/// A word in this many bytes is written and checked: two blocks that overlap share such a word.
pub(super) const STRIDE: u64 = 256;

fn places(words: DeviceSlice<u64>) -> impl Iterator<Item = u64> {
    (0..words.len()).step_by(STRIDE as usize / 8)
}

kernel! {
    /// Writes `mark` to the block.
    ///
    /// # Safety
    /// The block is live. For one thread.
    pub unsafe fn write(words: DeviceSlice<u64>, mark: u64) {
        for place in places(words) {
            // SAFETY: the block is live, and this is the only thread.
            unsafe { words.set(place, mark) };
        }
    }

    /// Counts the words of the block that are not `mark`, and writes `mark` again: a kernel that
    /// runs too late both finds and damages the words of the next owner.
    ///
    /// # Safety
    /// The block and `changed` are live. For one thread.
    pub unsafe fn check(words: DeviceSlice<u64>, mark: u64, changed: DeviceSlice<u64>) {
        // SAFETY: `changed` is live, and this is the only thread.
        let mut count = unsafe { changed.get(0) }.unwrap_or(0);
        for place in places(words) {
            // SAFETY: the block is live, and this is the only thread.
            count += u64::from(unsafe { words.get(place) } != Some(mark));
            // SAFETY: as for the read.
            unsafe { words.set(place, mark) };
        }
        // SAFETY: `changed` is live, and this is the only thread.
        unsafe { changed.set(0, count) };
    }
}
