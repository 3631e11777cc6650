//! Text for people.

use super::parse::JsonTarget;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Where text for people goes: to standard output, unless that is taken by the results.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    stdout_is_taken: bool,
}

impl Console {
    /// Text goes to standard error when the results go to standard output.
    pub fn new(json: Option<&JsonTarget>) -> Console {
        Console { stdout_is_taken: json == Some(&JsonTarget::Stdout) }
    }

    /// A line for people. That no one may be reading it any more does not change how the run ends.
    pub fn say(&self, line: impl fmt::Display) {
        let _ = if self.stdout_is_taken {
            writeln!(io::stderr(), "{line}")
        } else {
            writeln!(io::stdout(), "{line}")
        };
    }

    /// A line to standard error.
    pub fn warn(&self, line: impl fmt::Display) {
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Whether what is said shows on a terminal.
    pub fn is_terminal(&self) -> bool {
        if self.stdout_is_taken { io::stderr().is_terminal() } else { io::stdout().is_terminal() }
    }
}
