//! Why a grid ended before its end.

use super::Grid;
use std::fmt;
use std::panic::Location;
use warpheap_device::machine::Collective;
use warpheap_device::units::LaneMask;

/// A thread of the grid, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its block in the grid (x, y, z).
    pub block: [u32; 3],
    /// Its place in the block (x, y, z).
    pub thread: [u32; 3],
    /// Its place in its warp.
    pub lane: u32,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [x, y, z]) = (self.block, self.thread);
        write!(f, "thread ({x}, {y}, {z}) of block ({bx}, {by}, {bz}), lane {}", self.lane)
    }
}

/// A lane's call of a collective, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who called.
    pub thread: Thread,
    /// What it called.
    pub what: Collective,
    /// The lanes it waits for.
    pub mask: LaneMask,
    /// The line that called.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { thread, what, mask, at } = self;
        write!(f, "{thread}: {what:?} of {:#010x} at {at}", mask.0)
    }
}

/// Why a grid ended before its end. The lanes that had not ended were abandoned where they stood.
#[derive(thiserror::Error, Clone, Debug)]
#[non_exhaustive]
pub enum SimtError {
    /// The grid has a size that no launch can have.
    #[error("a grid of {:?} blocks of {:?} threads cannot be launched: {why}", .grid.blocks, .grid.threads)]
    Grid {
        /// The size.
        grid: Grid,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A thread panicked.
    #[error("{thread} panicked: {message}")]
    Panic {
        /// Who.
        thread: Thread,
        /// What the panic said.
        message: String,
    },
    /// A thread executed `trap`.
    #[error("{thread} trapped")]
    Trap {
        /// Who.
        thread: Thread,
    },
    /// Two lanes wait for each other in collectives that are not the same.
    #[error("two lanes of a warp wait for each other in different collectives: {first}; {second}")]
    Mismatch {
        /// The lane that came first.
        first: Box<Call>,
        /// The lane that came second.
        second: Box<Call>,
    },
    /// A collective names lanes that cannot come, or leaves out its caller.
    #[error("{call}, but {why} (lanes {:#010x})", .lanes.0)]
    Mask {
        /// The call.
        call: Box<Call>,
        /// The lanes that the mask is wrong about.
        lanes: LaneMask,
        /// What is wrong about them.
        why: &'static str,
    },
    /// Lanes of one warp wait for the block at different places.
    #[error("{thread} waits for its block at {at}, and a lane of the same warp at {other}")]
    Barrier {
        /// The lane that came second.
        thread: Thread,
        /// Where it came to.
        at: &'static Location<'static>,
        /// Where the other waits.
        other: &'static Location<'static>,
    },
    /// Every thread of a block waits for another, so none ever goes on.
    #[error("block {block:?} is deadlocked: all {lanes} threads that have not ended wait: {waiting}")]
    Deadlock {
        /// The block in the grid (x, y, z).
        block: [u32; 3],
        /// How many of its threads have not ended.
        lanes: u32,
        /// What they wait for, abbreviated.
        waiting: String,
    },
    /// The grid took more steps than it was given.
    #[error("the grid did not end within {limit} steps: a livelock, or the limit is too low for the job")]
    StepLimit {
        /// The bound on atomic operations, collectives and pauses.
        limit: u64,
    },
    /// The system gave no memory for the lanes' stacks.
    #[error("no stack for a lane of {bytes} bytes: {why} (fewer threads in a block need fewer stacks)")]
    Stack {
        /// Bytes of one stack.
        bytes: usize,
        /// What the system said.
        why: String,
    },
}
