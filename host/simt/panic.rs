//! Panics of threads: what they end, their description, and the panic hook that finds their place.
//!
//! The hook of the program is called for all panics but those of lanes: a panic of a lane is an
//! error that the run returns. Without the hook, the error has no place.

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
    /// The place of the last panic of a lane on this OS thread. No other lane runs while a panic
    /// unwinds one.
    static PLACE: RefCell<Option<(String, u32, u32)>> = const { RefCell::new(None) };
}

/// Installs the hook, once for the program. The calling OS thread does not panic.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| if machine::runs_a_lane() { note(info) } else { hook(info) }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map(|at| (at.file().to_owned(), at.line(), at.column()));
    PLACE.set(place);
}

/// The panic of a lane that has just unwound, with this message. Its thread is not known here.
pub(super) fn unwound(message: String) -> Box<Panic> {
    let (file, line, column) = PLACE.take().unwrap_or_default();
    Box::new(Panic { file, line, column, message, ..Panic::default() })
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
