//! Panics of threads: what they end, their description, and the panic hook that finds their place.
//!
//! The hook of the program is called for all panics but the first of a lane: that one is an error
//! that the run returns. A second one, in a destructor while the first one unwinds the lane, can
//! abort the program. Without our hook, the error has no place.

use super::error::SimtError;
use std::cell::RefCell;
use std::fmt;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;
use warpheap_device::machine;

/// What a panic of a thread ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// The thread. The other threads of the grid continue.
    #[default]
    EndThread,
    /// The grid. On a GPU this makes the context unusable.
    EndGrid,
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
    /// Whether the grid ended too: by [`OnPanic::EndGrid`], or by `then`.
    pub ended_grid: bool,
    /// The failure that ended the grid later, if one did. On the CPU only.
    pub then: Option<Box<SimtError>>,
}

impl Panic {
    /// Adds the panics of `later` to the number of others.
    pub(crate) fn absorb(&mut self, later: &Panic) {
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

thread_local! {
    /// The place of the last panic of the running lane, or of the last one on this OS thread. No
    /// other lane runs while a panic unwinds one. A kernel that catches its own panic leaves the
    /// place behind; then one more panic on this OS thread is passed to the hook of the program.
    static PLACE: RefCell<Option<(String, u32, u32)>> = const { RefCell::new(None) };
}

/// Installs the hook, once for the program. The calling OS thread does not panic.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            if !machine::runs_a_lane() || !is_first(info) {
                hook(info);
            }
        }));
    });
}

/// A lane starts on this OS thread.
pub(super) fn begin() {
    PLACE.set(None);
}

/// Notes the place of a panic of the running lane. Returns whether no other panic unwinds the lane.
fn is_first(info: &PanicHookInfo<'_>) -> bool {
    let place = info.location().map(|at| (at.file().to_owned(), at.line(), at.column()));
    PLACE.replace(place).is_none()
}

/// The panic of a lane that has just unwound, with this message. Its thread is not known here.
pub(super) fn unwound(message: String) -> Box<Panic> {
    let (file, line, column) = PLACE.take().unwrap_or_default();
    Box::new(Panic { file, line, column, message, ..Panic::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simt::{Executor, Grid, Mode};
    use std::process::Command;

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

    warpheap_device::kernel! {
        /// Panics, and again in a destructor.
        ///
        /// # Safety
        /// None.
        pub unsafe fn panics_twice() {
            struct Second;
            impl Drop for Second {
                fn drop(&mut self) {
                    panic!("the second panic");
                }
            }
            let _second = Second;
            panic!("the first panic");
        }
    }

    #[test]
    fn a_panic_that_aborts_the_program_is_printed() {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--ignored", "--exact", "--nocapture"]).arg(CHILD);
        let output = program.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains("the second panic"), "{printed}");
    }

    const CHILD: &str = "simt::panic::tests::child_panics_twice";

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn child_panics_twice() {
        let grid = Grid { blocks: [1; 3], threads: [1; 3] };
        // SAFETY: the kernel accesses nothing.
        let _ = unsafe { Executor::new(Mode::Replay { seed: 0 }).run::<panics_twice>(grid, ()) };
    }

    #[test]
    fn later_panics_are_counted() {
        let mut first = Panic { others: 2, ..panic() };
        first.absorb(&Panic { others: 3, line: 1, ..panic() });
        assert_eq!((first.others, first.line), (6, 45));
    }
}
