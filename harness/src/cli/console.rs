//! Output for people.

use super::parse::JsonTarget;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Target of text for people: standard output, unless the results go there.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    stdout_is_taken: bool,
}

impl Console {
    /// Text goes to standard error when the results go to standard output.
    pub fn new(json: Option<&JsonTarget>) -> Console {
        Console { stdout_is_taken: json == Some(&JsonTarget::Stdout) }
    }

    /// Prints a line for people. A closed output does not change how the run ends.
    pub fn say(&self, line: impl fmt::Display) {
        if self.stdout_is_taken || cfg!(test) {
            return self.warn(line);
        }
        let _ = writeln!(io::stdout(), "{line}");
    }

    /// Prints a line to standard error.
    pub fn warn(&self, line: impl fmt::Display) {
        if cfg!(test) {
            // Tests capture only what the macros print.
            return eprintln!("{line}");
        }
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Whether the text goes to a terminal.
    pub fn is_terminal(&self) -> bool {
        if self.stdout_is_taken { io::stderr().is_terminal() } else { io::stdout().is_terminal() }
    }
}
