//! Kernels on the CPU: runs the same kernel functions in warps of 32 lanes, without a GPU.
//!
//! Programs use this crate as `warpheap::simt`. It depends on `warpheap-machine`, and neither on
//! the crate of kernels nor on the host library.
//!
//! A GPU thread is a fiber with a separate stack. The 32 threads of a warp take turns on one OS
//! thread, and a collective waits for the lanes of its mask. Lanes are independent, as on every GPU
//! since Volta: they may diverge, spin on each other, and end at different times.
//!
//! ```
//! use warpheap_sim::{Executor, Grid, Mode};
//! use warpheap_device::{kernel, kernel::DeviceSlice, thread, units::LaneMask, warp};
//!
//! kernel! {
//!     /// Writes how many threads of the warp have an odd number.
//!     ///
//!     /// # Safety
//!     /// `out` is live, and all warps of a block are full.
//!     unsafe fn odd(out: DeviceSlice<u32>) {
//!         let is_odd = thread::index_1d() % 2 == 1;
//!         // SAFETY: all lanes reach this call.
//!         let lanes = unsafe { warp::warp_vote_ballot(LaneMask::ALL, is_odd) };
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
//!     // SAFETY: `out` is live, and 64 threads are two full warps.
//!     let stats = unsafe { executor.run::<odd>(grid, (out,)) }?;
//!     assert!(stats.steps >= 256);
//!     assert!(counts.iter().all(|&n| n == 16));
//! }
//! # Ok::<(), warpheap_sim::SimtError>(())
//! ```
//!
//! # Two modes
//! - [`Mode::Parallel`]: blocks run on several OS threads, with the CPU's atomics. For stress tests
//!   and speed.
//! - [`Mode::Replay`]: one OS thread. At every atomic operation, collective and pause a seeded
//!   choice selects the lane of the resident blocks that runs next. The same seed, kernel and
//!   inputs give the same run, which [`Stats::schedule_hash`] confirms. For finding and reproducing
//!   races.
//!
//! Different seeds use different schedules: random single steps, bursts, starvation of one lane or
//! warp, or strict priorities that change at times.
//!
//! # Differences from a GPU
//! - **Memory.** A replay is sequentially consistent. A parallel run has the CPU's memory model,
//!   which on x86 is nearly so. Neither shows a missing fence or a too weak ordering; the model
//!   checker does. Every wrong *interleaving* of atomic operations can be found.
//! - **Switching.** Lanes switch only at atomic operations, collectives, pauses and clock reads.
//!   Between two of those a lane runs alone on its OS thread. So a race of plain reads and writes
//!   is found only if atomics lie in between, and a lane that spins without any of them never ends.
//! - **`activemask`.** Lanes wait at the call until the rest of the warp waits, has ended, or has
//!   had its turn elsewhere. Then all lanes that wait at the same *source line* continue together.
//!   In a replay the seed sometimes releases them early or in parts. A helper function that calls
//!   it and that one warp can enter through two call sites at once must be `#[track_caller]`
//!   (`cfg_attr`-ed off nvptx), so that the call sites count as different places, as on a GPU after
//!   inlining.
//! - **Stricter.** These are errors that name lanes and lines: collectives of lanes that wait for
//!   each other with different masks or operations, masks that name ended lanes or omit the caller,
//!   lanes of one warp at different `sync_threads`, and blocks in which every thread waits. A GPU
//!   hangs, or continues with wrong values.
//! - **More forgiving.** In parallel mode blocks may wait for one another without co-residency, up
//!   to 32 warps per worker. A replay keeps 8 warps resident, or one block.
//! - **Ends.** `exit` and all errors discard a thread's frames without running destructors, as on a
//!   GPU. A panic is the exception: it unwinds the frames of the thread that panicked.
//! - **Panics.** A panic ends its thread, and the run returns an error when the grid has ended;
//!   with [`OnPanic::EndGrid`] it ends the grid. The first run installs a panic hook. The first
//!   panic of a lane prints nothing; all others reach the hook of the program. A collective that
//!   waits for the thread ends the grid.
//! - **Stack overflow.** A lane that exceeds its stack ([`Executor::with_stack_bytes`]) ends the
//!   process with a message that names the kernel and the thread. The first run installs a handler
//!   of SIGSEGV and SIGBUS for that, which passes all other faults to the handler that the program
//!   had before. On systems other than Unix, there is no message.
//! - **`alloc`.** `Vec`, `Box` and the like allocate as in the program. With
//!   `warpheap::simt::KernelAllocator` as the program's `#[global_allocator]`, kernels of a module
//!   allocate from its global heap, as on a GPU.
//! - **Time.** `clock` and `global_timer_nanos` count nanoseconds in parallel mode and steps of the
//!   entire grid in a replay. `nanosleep` does not sleep: it lets other lanes run.
//!
//! # Modules
//! `threads, grid → error → panic → stack → fiber → machine → overflow, lane → rendezvous → warp →`
//! `launch → block → scheduler → parallel, replay → executor`: each module uses only those before
//! it. A mode only selects which ready lane runs next; `warp` and `block` decide which lanes are
//! ready, for both modes.
#![cfg(not(loom))]

mod block;
mod error;
mod executor;
mod fiber;
mod grid;
mod lane;
mod launch;
mod machine;
mod overflow;
mod panic;
mod parallel;
mod rendezvous;
mod replay;
mod scheduler;
mod stack;
#[doc(hidden)]
pub mod threads;
mod warp;

pub use error::{Call, Panic, SimtError, Thread};
pub use executor::Executor;
pub use grid::{Grid, Mode, Stats};
pub use lane::message;
pub use launch::{Around, Settings};
pub use panic::OnPanic;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks without regard to poisoning: no critical section of this crate panics between two changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
