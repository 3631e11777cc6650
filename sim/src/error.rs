//! Errors that end a grid early, and panics that end some of its threads.

use super::grid::Grid;
use std::fmt;
use std::panic::Location;
use warpheap_machine::machine::Collective;
use warpheap_machine::units::LaneMask;

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
        /// The thread that executed it.
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

/// Threads panicked: a description of one of them, and the number of the others.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Panic {
    /// The source file. Empty if it is not known: on the CPU, after the program replaced the panic
    /// hook.
    pub file: String,
    /// The line in the file.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// The thread's index in its block, counted over x, then y, then z.
    pub thread: u32,
    /// The block's index in the grid, counted over x, then y, then z.
    pub block: u64,
    /// The message. Empty on a GPU, unless the kernels were built with the feature `panic-message`
    /// of `warpheap-device`.
    pub message: String,
    /// Number of other threads that panicked.
    pub others: u64,
    /// Whether the grid ended too: by [`OnPanic::EndGrid`](super::OnPanic::EndGrid), or by `then`.
    pub ended_grid: bool,
    /// The failure that ended the grid later, if one did. On the CPU only.
    pub then: Option<Box<SimtError>>,
}

impl Panic {
    /// Adds the panics of `later` to the number of others.
    #[doc(hidden)]
    pub fn absorb(&mut self, later: &Panic) {
        self.others += 1 + later.others;
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Panic { file, line, column, thread, block, others, message, then, .. } = self;
        match file.as_str() {
            "" => f.write_str("panicked at an unknown place")?,
            file => write!(f, "panicked at {file}:{line}:{column}")?,
        }
        write!(f, ", thread {thread} of block {block}")?;
        match others {
            0 => {}
            1 => f.write_str(", and 1 other")?,
            others => write!(f, ", and {others} others")?,
        }
        if !message.is_empty() {
            write!(f, ": {message}")?;
        }
        then.iter().try_for_each(|then| write!(f, "; then the grid failed: {then}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panic() -> Panic {
        Panic { file: "src/lib.rs".into(), line: 45, column: 47, thread: 3, ..Panic::default() }
    }

    #[test]
    fn a_panic_is_described_in_one_line() {
        let one = panic();
        assert_eq!(one.to_string(), "panicked at src/lib.rs:45:47, thread 3 of block 0");
        let two = Panic { others: 1, block: 7, ..panic() };
        assert_eq!(two.to_string(), "panicked at src/lib.rs:45:47, thread 3 of block 7, and 1 other");
        let many = Panic { others: 204, message: "index 9".into(), ..panic() };
        assert_eq!(
            many.to_string(),
            "panicked at src/lib.rs:45:47, thread 3 of block 0, and 204 others: index 9"
        );
        let then = Panic { then: Some(Box::new(SimtError::StepLimit { limit: 5 })), ..panic() };
        assert!(then.to_string().contains("; then the grid failed: the grid did not end"), "{then}");
        let unknown = Panic::default();
        assert_eq!(unknown.to_string(), "panicked at an unknown place, thread 0 of block 0");
    }

    #[test]
    fn later_panics_are_counted() {
        let mut first = Panic { others: 2, ..panic() };
        first.absorb(&Panic { others: 3, line: 1, ..panic() });
        assert_eq!((first.others, first.line), (6, 45));
    }
}
