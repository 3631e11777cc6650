//! A grid of threads, the mode in which it runs, and the statistics of a run.

/// The mode in which an [`Executor`](super::Executor) runs a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Blocks run on several OS threads.
    Parallel {
        /// Number of OS threads per run, including the caller. 0 counts as 1.
        workers: usize,
    },
    /// One OS thread; the seed selects the lane that runs next.
    Replay {
        /// The seed that reproduces the run.
        seed: u64,
    },
}

/// The dimensions of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in the grid (x, y, z).
    pub blocks: [u32; 3],
    /// Threads in a block (x, y, z), at most 1024 in total.
    pub threads: [u32; 3],
}

/// Statistics of a completed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Atomic operations, collectives and pauses of all threads.
    pub steps: u64,
    /// In a replay: a hash of the schedule. Runs with the same hash had the same schedule.
    /// Otherwise 0.
    pub schedule_hash: u64,
}
