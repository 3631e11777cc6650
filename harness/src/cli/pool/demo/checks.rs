//! Checks of a demonstration.

use super::stage::{Check, Stage};
use std::fmt::{Debug, Display};
use warpheap::{Error, Result, Stream};
use warpheap_device::kernel::DeviceSlice;

impl Stage {
    /// Records a check with the observed value `found`. Also releases all held streams, so work
    /// that runs too early must have done so before.
    pub fn check(&mut self, what: impl Into<String>, found: impl Display, holds: bool) {
        let (what, found) = (what.into(), found.to_string());
        let word = if holds { "[ok]    " } else { "[FAILED]" };
        self.console.say(format_args!("  {word} {what}: {found}"));
        self.checks.push(Check { what, found, holds, is_reported: false });
        let released = self.release_all();
        if self.released.is_ok() {
            self.released = released;
        }
    }

    /// Checks that `found` is `expected`.
    pub fn check_is<T: PartialEq + Debug>(&mut self, what: impl Into<String>, found: T, expected: T) {
        let holds = found == expected;
        let instead = if holds { String::new() } else { format!(" instead of {expected:?}") };
        self.check(what, format_args!("{found:?}{instead}"), holds);
    }

    /// As [`check_is`](Stage::check_is), for a value that the library reports.
    pub fn check_reported<T: PartialEq + Debug>(&mut self, what: impl Into<String>, found: T, expected: T) {
        self.check_is(what, found, expected);
        self.mark_reported();
    }

    /// Marks the last check as one of a value that the library reports.
    pub fn mark_reported(&mut self) {
        if let Some(check) = self.checks.last_mut() {
            check.is_reported = true;
        }
    }

    /// Checks that a call failed with the error that `is_expected` accepts, and prints its message.
    pub fn check_fails<T>(
        &mut self,
        what: impl Into<String>,
        outcome: Result<T>,
        is_expected: impl FnOnce(&Error) -> bool,
    ) {
        match outcome {
            Ok(_) => self.check(what, "it succeeded", false),
            Err(error) => self.check(what, &error, is_expected(&error)),
        }
        self.mark_reported();
    }

    /// Checks that all words have that value, after the earlier work of the stream.
    pub fn check_words(
        &mut self,
        what: impl Into<String>,
        stream: &Stream,
        words: DeviceSlice<u32>,
        value: u32,
    ) -> Result<()> {
        let different = self.different(stream, words, value)?;
        self.check(what, format_args!("{different} of {} are wrong", words.len()), different == 0);
        Ok(())
    }
}
