//! Kernels that write and check a block.

use crate::driver::{DeviceBuffer, LaunchConfig, Module, Stream};
use std::alloc::Layout;
use warpheap_device::kernel;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

/// A word in this many bytes is written and checked: two blocks that overlap share such a word.
const STRIDE: u64 = 256;

fn places(words: DeviceSlice<u64>) -> impl Iterator<Item = u64> {
    (0..words.len()).step_by(STRIDE as usize / 8)
}

kernel! {
    /// Writes `mark` to the block.
    ///
    /// # Safety
    /// The block is live. For one thread.
    unsafe fn write(words: DeviceSlice<u64>, mark: u64) {
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
    unsafe fn check(words: DeviceSlice<u64>, mark: u64, changed: DeviceSlice<u64>) {
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

/// Launches a kernel that writes `mark` to a block that was allocated for work on the stream.
pub(in super::super) fn launch_write(
    module: &Module,
    stream: &Stream,
    (ptr, layout): (DevicePtr<u8>, Layout),
    mark: u64,
) {
    // SAFETY: P1, P3: the block is live, and its pool promises that the stream is ordered after all
    // other work on it. The tests check this promise; all kernels run in one thread. P2: the native
    // module. P4 to P6: the kernel uses no pool, destructor or thread-local variable.
    unsafe { stream.launch(module, write, &ONE, (words(ptr, layout), mark)) }.unwrap();
}

/// Launches a kernel that checks `mark` in a block, on a stream that is ordered after its first
/// use. It adds the words that it finds changed to `changed`.
pub(super) fn launch_check(
    module: &Module,
    stream: &Stream,
    (ptr, layout): (DevicePtr<u8>, Layout),
    mark: u64,
    changed: &DeviceBuffer<u64>,
) {
    let arguments = (words(ptr, layout), mark, changed.slice());
    // SAFETY: as in `launch_write`; the program keeps `changed`.
    unsafe { stream.launch(module, check, &ONE, arguments) }.unwrap();
}

/// The words of a block.
fn words(ptr: DevicePtr<u8>, layout: Layout) -> DeviceSlice<u64> {
    assert!(layout.size() as u64 >= STRIDE, "a block has a word to check");
    // SAFETY: the words lie in the block, which is aligned to 256.
    unsafe { DeviceSlice::from_raw_parts(ptr.0.cast(), layout.size() as u64 / 8) }
}
