//! Kernels on the CPU: the same kernel functions, run by 32-lane warps without a GPU.
//!
//! A GPU thread is a fiber with a stack of its own; the 32 of a warp run by turns on one OS thread, and
//! a collective waits for the lanes of its mask. Lanes are independent, as on every GPU since Volta: they
//! may diverge, spin on each other, and end one by one.
//!
//! ```
//! use warpheap::simt::{Executor, Grid, Mode};
//! use warpheap_device::{kernel, kernel::DeviceSlice, thread, units::LaneMask, warp};
//!
//! kernel! {
//!     /// Writes how many threads of the warp have an odd number.
//!     ///
//!     /// # Safety
//!     /// `out` is live, and blocks have whole warps.
//!     unsafe fn odd(out: DeviceSlice<u32>) {
//!         // SAFETY: all lanes come here.
//!         let lanes = unsafe { warp::warp_vote_ballot(LaneMask::ALL, thread::index_1d() % 2 == 1) };
//!         // SAFETY: each thread has its own element.
//!         unsafe { out.set(thread::index_1d().into(), lanes.count()) };
//!     }
//! }
//!
//! let mut counts = vec![0u32; 256];
//! // SAFETY: the vector lives until the end of the run.
//! let out = unsafe { DeviceSlice::from_raw_parts(counts.as_mut_ptr(), 256) };
//! let grid = Grid { blocks: [4, 1, 1], threads: [64, 1, 1] };
//! for mode in [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 1 }] {
//!     let executor = Executor::new(mode);
//!     // SAFETY: `out` is live, and 64 threads are two whole warps.
//!     let stats = unsafe { executor.run::<odd>(grid, (out,)) }?;
//!     assert!(stats.steps >= 256);
//!     assert!(counts.iter().all(|&n| n == 16));
//! }
//! # Ok::<(), warpheap::simt::SimtError>(())
//! ```
//!
//! # Two ways to run
//! - [`Mode::Parallel`]: blocks over OS threads, with the CPU's own atomics. For stress and for speed.
//! - [`Mode::Replay`]: one OS thread, and a seed that decides at every atomic operation, collective and pause
//!   which lane of the resident blocks runs next. The same seed, kernel and inputs give the same run, which
//!   [`Stats::schedule_hash`] confirms. For finding a race, and finding it again.
//!
//! Different seeds choose in different ways: single steps at random, bursts, one lane or warp left out for
//! long, or strict ranks that change now and then.
//!
//! # What differs from a GPU
//! - **Memory.** A replay is sequentially consistent and a parallel run has the CPU's memory model, which
//!   on x86 is nearly so. A missing fence or a too weak ordering shows up in neither: that is the model
//!   checker's job. What is found is every wrong *interleaving* of atomic operations.
//! - **Where lanes switch.** Only at atomic operations, collectives, pauses and readings of the clock.
//!   Between two of those a lane runs alone on its OS thread, so a race of plain reads and writes is found
//!   only where atomics lie in between, and a lane that spins without any of them never ends.
//! - **`activemask`.** Lanes wait at the call until the rest of the warp waits, has ended, or has had its
//!   turn without coming; then all lanes that wait at the same *line of source* go on together. In a replay
//!   the seed now and then lets them go early or in parts. A helper function that calls it and that one
//!   warp can be in through two call sites at once must be `#[track_caller]` (`cfg_attr`-ed off nvptx), so
//!   that the sites count as different places, as they do on a GPU once the helper is inlined.
//! - **Stricter.** Collectives of lanes that wait for each other with different masks or operations,
//!   masks that name lanes that have ended or miss the caller, lanes of one warp at different
//!   `sync_threads`, and blocks in which everyone waits are errors that name lanes and lines. A GPU hangs,
//!   or goes on with wrong values.
//! - **More forgiving.** Blocks need no co-residency to wait for one another in parallel mode, up to 32
//!   warps for each worker; replays keep 8 warps resident, or one block.
//! - **Ends.** `exit`, and any error, forget a thread's frames without dropping what they own, as a GPU
//!   does. A panic is the exception: the frames of the thread that panicked are unwound.
//! - **Stack overflow** of a lane (128 KiB) hits a guard page and kills the process.
//! - **Time.** `clock` and `global_timer_nanos` count nanoseconds in parallel mode and steps of the whole
//!   grid in replays. `nanosleep` never sleeps: it lets others run.
//!
//! # Modules
//! `stack → fiber → lane → rendezvous → warp → block → launch → parallel, replay (with choice) → executor`: each
//! uses those before it. What a mode decides is only which ready lane runs next; who is ready is decided
//! by `warp` and `block` for both.

mod block;
mod choice;
mod error;
mod executor;
mod fiber;
mod lane;
mod launch;
mod parallel;
mod rendezvous;
mod replay;
mod stack;
mod warp;

pub use error::{Call, SimtError, Thread};
pub use executor::Executor;
pub(crate) use lane::message;

/// How an [`Executor`] runs a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Blocks over OS threads.
    Parallel {
        /// OS threads for each run, the calling one among them. None counts as one.
        workers: usize,
    },
    /// One OS thread; the seed decides which lane runs next.
    Replay {
        /// Reproduces the run.
        seed: u64,
    },
}

/// The size of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in the grid (x, y, z).
    pub blocks: [u32; 3],
    /// Threads in a block (x, y, z), 1024 at most together.
    pub threads: [u32; 3],
}

/// What a run that came to its end was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Atomic operations, collectives and pauses of all threads together.
    pub steps: u64,
    /// Of a replay: a hash of which lane ran when. Two runs with the same hash were the same. Otherwise 0.
    pub schedule_hash: u64,
}
