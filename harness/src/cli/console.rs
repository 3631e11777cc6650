//! Output for people, and standard output.

use super::parse::Target;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// The first error of an output for people. Later text is written nevertheless, because a run also
/// has other results.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Target of text for people: standard output, unless results go there.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    stdout_is_taken: bool,
    /// Text is made, but not printed.
    #[cfg(test)]
    is_silent: bool,
}

impl Console {
    /// Text goes to standard error when one of the outputs is standard output.
    pub fn new<'a>(outputs: impl IntoIterator<Item = &'a Target>) -> Console {
        Console {
            stdout_is_taken: outputs.into_iter().any(|output| *output == Target::Stdout),
            #[cfg(test)]
            is_silent: false,
        }
    }

    /// Prints nothing.
    #[cfg(test)]
    pub fn silent() -> Console {
        Console { stdout_is_taken: true, is_silent: true }
    }

    /// Prints a line for people. [`finish`] reports an error.
    pub fn say(&self, line: impl fmt::Display) {
        let written = match self.stdout_is_taken {
            _ if cfg!(test) => return self.warn(line),
            true => writeln!(io::stderr(), "{line}"),
            false => writeln!(io::stdout(), "{line}"),
        };
        keep(written);
    }

    /// Prints a line to standard error. If that fails, the exit status still tells.
    pub fn warn(&self, line: impl fmt::Display) {
        #[cfg(test)]
        if self.is_silent {
            return drop(line.to_string());
        }
        if cfg!(test) {
            // Tests capture only what the macros print.
            #[allow(clippy::print_stderr, reason = "only in tests")]
            return eprintln!("{line}");
        }
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Whether the text goes to a terminal.
    pub fn is_terminal(&self) -> bool {
        if self.stdout_is_taken { io::stderr().is_terminal() } else { io::stdout().is_terminal() }
    }
}

/// Keeps the error of an output for people.
pub fn keep(written: io::Result<()>) {
    if let Err(error) = written {
        LOST.get_or_init(|| error);
    }
}

/// The first error of an output for people, at the end of the program.
pub fn finish() -> Result<(), &'static io::Error> {
    keep(io::stdout().flush());
    LOST.get().map_or(Ok(()), Err)
}

/// From now on a write to a closed pipe ends the process by SIGPIPE, without a message, as in other
/// programs: `warpheap map heap.json | head`. Rust's programs ignore the signal at their start.
#[cfg(unix)]
pub fn end_with_closed_pipes() {
    const SIGPIPE: i32 = 13;
    const SIG_DFL: usize = 0;
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    // SAFETY: a valid signal, and the default action instead of a handler.
    unsafe { signal(SIGPIPE, SIG_DFL) };
}

#[cfg(not(unix))]
pub fn end_with_closed_pipes() {}
