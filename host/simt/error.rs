//! Errors that end a grid early.

use super::grid::Grid;
use super::panic::Panic;
use std::fmt;
use std::panic::Location;
use warpheap_device::machine::Collective;
use warpheap_device::units::LaneMask;

/// A thread of the grid, in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its block in the grid (x, y, z).
    pub block: [u32; 3],
    /// The thread's index in the block (x, y, z).
    pub thread: [u32; 3],
    /// The lane in the warp.
    pub lane: u32,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [x, y, z]) = (self.block, self.thread);
        write!(f, "thread ({x}, {y}, {z}) of block ({bx}, {by}, {bz}), lane {}", self.lane)
    }
}

/// A lane's call of a collective, in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The calling thread.
    pub thread: Thread,
    /// The operation.
    pub what: Collective,
    /// The mask of the call.
    pub mask: LaneMask,
    /// The source location of the call.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { thread, what, mask, at } = self;
        write!(f, "{thread}: {what:?} with mask {:#010x} at {at}", mask.0)
    }
}

/// The error that ended a grid, or panics that ended some of its threads. Lanes that had not ended
/// when the grid ended were abandoned.
#[derive(thiserror::Error, Clone, Debug)]
#[non_exhaustive]
pub enum SimtError {
    /// The grid has dimensions that no launch supports.
    #[error("a grid of {:?} blocks of {:?} threads cannot be launched: {why}", .grid.blocks, .grid.threads)]
    Grid {
        /// The dimensions.
        grid: Grid,
        /// The reason.
        why: &'static str,
    },
    /// Threads panicked. Unless [`Panic::ended_grid`] is set, the other threads ran to their ends.
    #[error("{0}")]
    Panic(Box<Panic>),
    /// A thread executed `trap`.
    #[error("{thread} trapped")]
    Trap {
        /// The thread.
        thread: Thread,
    },
    /// Two lanes wait for each other in different collectives.
    #[error("two lanes of a warp wait for each other in different collectives: {first}; {second}")]
    Mismatch {
        /// The call of the lane that arrived first.
        first: Box<Call>,
        /// The call of the lane that arrived second.
        second: Box<Call>,
    },
    /// A collective's mask names lanes that cannot arrive, or omits its caller.
    #[error("{call}, but {why} (lanes {:#010x})", .lanes.0)]
    Mask {
        /// The call.
        call: Box<Call>,
        /// The wrong lanes of the mask.
        lanes: LaneMask,
        /// The reason.
        why: &'static str,
    },
    /// Lanes of one warp wait at the block's barrier at different places.
    #[error("{thread} waits at the block barrier at {at}, but another lane of its warp at {other}")]
    Barrier {
        /// The lane that arrived second.
        thread: Thread,
        /// The source location of its wait.
        at: &'static Location<'static>,
        /// The source location of the other lane's wait.
        other: &'static Location<'static>,
    },
    /// Every thread of a block waits for another, so the block is deadlocked.
    #[error("block {block:?} is deadlocked: all {lanes} threads that have not ended wait: {waiting}")]
    Deadlock {
        /// The block in the grid (x, y, z).
        block: [u32; 3],
        /// Number of its threads that have not ended.
        lanes: u32,
        /// Their wait conditions, abbreviated.
        waiting: String,
    },
    /// The grid exceeded its step limit.
    #[error("the grid did not end within {limit} steps: a livelock, or the limit is too low for this kernel")]
    StepLimit {
        /// The limit on atomic operations, collectives and pauses.
        limit: u64,
    },
    /// The system has no memory for the lanes' stacks.
    #[error(
        "cannot allocate a lane stack of {bytes} bytes: {why}; use fewer threads per block, fewer streams at once, or smaller stacks (Executor::with_stack_bytes)"
    )]
    Stack {
        /// Bytes per stack.
        bytes: usize,
        /// The system's reason.
        why: String,
    },
    /// A kernel that is launched while its OS thread unwinds runs on another thread, which cannot
    /// be started.
    #[error("no thread could be started to run the grid while another unwinds: {why}")]
    Thread {
        /// The system's reason.
        why: String,
    },
}
