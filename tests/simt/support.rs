//! What the tests share: words in "device" memory, grids, and runs in every mode.

use std::cell::UnsafeCell;
use warpheap::simt::{Executor, Grid, Mode, SimtError, Stats};
use warpheap_device::kernel::{DeviceSlice, Kernel};
use warpheap_device::sync::AtomicU32;

/// Words that a kernel reads and writes.
pub struct Words(Vec<UnsafeCell<u32>>);

// SAFETY: threads reach the words through `word`, atomically, or through a slice as its contract allows.
unsafe impl Sync for Words {}

impl Words {
    pub fn zeroed(count: usize) -> Self {
        Self::of((0..count).map(|_| 0))
    }

    pub fn of(words: impl IntoIterator<Item = u32>) -> Self {
        Words(words.into_iter().map(UnsafeCell::new).collect())
    }

    /// The words as a kernel's argument. To be used only while `self` lives.
    pub fn slice(&self) -> DeviceSlice<u32> {
        // SAFETY: every test keeps its words until its runs are over.
        unsafe { DeviceSlice::from_raw_parts(self.0.as_ptr().cast_mut().cast(), self.0.len() as u64) }
    }

    /// What the words hold, when no kernel runs.
    pub fn values(&self) -> Vec<u32> {
        // SAFETY: no kernel runs.
        self.0.iter().map(|word| unsafe { *word.get() }).collect()
    }
}

/// Word `i`, in a kernel.
pub fn word(words: DeviceSlice<u32>, i: u32) -> &'static AtomicU32 {
    assert!(u64::from(i) < words.len(), "word {i} of {}", words.len());
    // SAFETY: in bounds.
    let place = unsafe { words.as_ptr().add(i as usize) };
    // SAFETY: every test keeps its words until its runs are over, and the layouts are the same.
    unsafe { &*place.cast::<AtomicU32>() }
}

pub fn grid(blocks: u32, threads: u32) -> Grid {
    Grid { blocks: [blocks, 1, 1], threads: [threads, 1, 1] }
}

pub const PARALLEL: Mode = Mode::Parallel { workers: 2 };

/// Parallel, and seeds enough to see every way of choosing.
pub fn modes() -> impl Iterator<Item = Mode> {
    std::iter::once(PARALLEL).chain((0..12).map(|seed| Mode::Replay { seed }))
}

/// Runs a kernel of these tests, which ask nothing of their caller but that their words live.
pub fn run<K: Kernel>(kernel: K, mode: Mode, grid: Grid, args: K::Args) -> Result<Stats, SimtError> {
    // Who waits in parallel takes as many steps as the machine has time for until the other one comes.
    let steps = if mode == PARALLEL { 1 << 30 } else { 1 << 22 };
    run_bounded(kernel, mode, steps, grid, args)
}

/// The same, within `steps` steps.
pub fn run_bounded<K: Kernel>(
    _: K,
    mode: Mode,
    steps: u64,
    grid: Grid,
    args: K::Args,
) -> Result<Stats, SimtError> {
    let executor = Executor::new(mode).with_step_limit(steps);
    // SAFETY: see above.
    unsafe { executor.run::<K>(grid, args) }
}
