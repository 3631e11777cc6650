//! Stack overflow of a lane: a message that names the thread, then the end of the process.
//!
//! The run cannot go on without the lane: at the overflow, the lane may have been inside of the
//! system's allocator or of any other code that has to complete. So its frames can neither be
//! unwound nor discarded.
//!
//! The overflow hits the guard page below the stack, and a signal handler on a stack of its own
//! finds the OS thread's [`Running`]. All other faults are passed to the handler that the program
//! had before.

use super::machine::LaneMachine;

/// What an OS thread runs.
pub(super) struct Running<'a> {
    pub(super) machine: &'a LaneMachine,
    pub(super) kernel: &'static str,
    pub(super) stack_bytes: usize,
}

#[cfg(unix)]
pub(super) use handler::watch;

/// There is no handler on this system.
#[cfg(not(unix))]
pub(super) fn watch(_running: &Running<'_>) {}

#[cfg(unix)]
mod handler;
#[cfg(all(test, unix))]
mod tests;
