//! Runs a scenario once for each of its driver calls, with a failure at that call.
//!
//! A scenario uses the device of a [`Run`] and drops everything that it created. It makes fallible
//! calls through [`attempt`](Run::attempt) or [`must`](Run::must), which retry as a program would.
//! The run then checks that nothing is left, neither with the driver nor in the device's registry.

use super::calls::Call;
use super::device::faulty_device;
use super::faults::{Faults, Which};
use crate::driver::Device;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// `CUDA_ERROR_UNKNOWN`.
const BROKEN: u32 = 999;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const NO_MEMORY: u32 = 2;
/// Device memory in bytes.
const MEMORY: u64 = 64 << 20;
/// A call that fails once succeeds at the second attempt.
const ATTEMPTS: usize = 2;

/// One run of a scenario, on its own device.
pub(crate) struct Run {
    pub device: Device,
    pub faults: Arc<Faults>,
    name: &'static str,
    which: Which,
    /// Whether the driver recovers when a call that must succeed has failed [`ATTEMPTS`] times.
    recovers: bool,
    /// Resources of constructors that failed: no object exists that could free them.
    excused: Vec<(Call, u64)>,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}, failed: {:?}", self.name, self.which, self.faults.failed())
    }
}

/// Whether the error names the injected failure of a driver call.
pub(crate) fn is_injected(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("INJECTED") && text.contains("cu")
}

impl Run {
    fn new(name: &'static str, which: Which, code: u32, recovers: bool) -> Run {
        let (device, faults) = faulty_device(MEMORY);
        faults.tell(which, code);
        Run { device, faults, name, which, recovers, excused: Vec::new() }
    }

    /// A run without failures.
    pub fn unharmed(name: &'static str) -> Run {
        Run::new(name, Which::Never, BROKEN, true)
    }

    /// Whether the driver recovers in the end.
    pub fn recovers(&self) -> bool {
        self.recovers
    }

    /// Ends the failures of a run in which all calls from one on fail.
    pub fn recover(&self) {
        if let Which::From(_) = self.which {
            self.faults.tell(Which::Never, 0);
        }
    }

    /// Calls `call`, and retries if the driver failed. `None` if every attempt failed because the
    /// driver keeps failing.
    pub fn attempt<T>(&self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        for _ in 0..ATTEMPTS {
            match call() {
                Ok(done) => return Some(done),
                Err(error) => assert!(is_injected(&error), "{self}: {error}"),
            }
        }
        assert!(matches!(self.which, Which::From(_)), "{self}: it fails a second time");
        None
    }

    /// Calls `call` until it succeeds: the driver recovers if every attempt failed. `None` only if
    /// it never recovers.
    pub fn must<T>(&self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        let done = self.attempt(&mut call);
        if done.is_some() || !self.recovers {
            return done;
        }
        self.recover();
        self.attempt(call)
    }

    /// Calls a constructor, and retries if the driver failed. Resources that it acquired and could
    /// not return stay with the driver.
    pub fn construct<T>(&mut self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        let done = self.attempt(&mut call);
        if done.is_some() || !self.recovers {
            return done;
        }
        self.excused = self.faults.held();
        self.recover();
        self.attempt(call)
    }

    fn finish(self) -> Vec<Call> {
        let held = self.faults.held();
        assert!(!self.recovers || held == self.excused, "{self}: {held:?} is left");
        assert_eq!(self.device.memory_in_use(), (0, 0), "{self}");
        self.faults.all_calls()
    }
}

/// All driver calls of one run.
fn run(
    name: &'static str,
    (which, code, recovers): (Which, u32, bool),
    scenario: impl Fn(&mut Run),
) -> Vec<Call> {
    let mut run = Run::new(name, which, code, recovers);
    scenario(&mut run);
    run.finish()
}

/// All driver calls of a run without failures.
fn calls_of(name: &'static str, scenario: impl Fn(&mut Run)) -> Vec<Call> {
    run(name, (Which::Never, BROKEN, true), scenario)
}

/// Each call fails once and leaks nothing. Returns all calls of a run without failures.
pub(crate) fn each_call_fails_once(name: &'static str, scenario: impl Fn(&mut Run)) -> Vec<Call> {
    let all = calls_of(name, &scenario);
    for code in [BROKEN, NO_MEMORY] {
        for nth in 1..=all.len() {
            let these = run(name, (Which::Nth(nth), code, true), |run| {
                scenario(run);
                assert_eq!(run.faults.failed(), [all[nth - 1]], "{run}: call {nth}");
            });
            assert_eq!(these[..nth], all[..nth], "{name}: before call {nth}");
        }
    }
    all
}

/// All calls fail from each call on, until the driver recovers.
pub(crate) fn all_calls_fail_for_a_while(name: &'static str, scenario: impl Fn(&mut Run)) {
    let all = calls_of(name, &scenario);
    for (first, code) in (1..=all.len()).flat_map(|first| [(first, BROKEN), (first, NO_MEMORY)]) {
        run(name, (Which::From(first), code, true), &scenario);
    }
}

/// All calls fail from each call on. No drop panics, and the device regards nothing as allocated.
pub(crate) fn all_calls_fail_for_good(name: &'static str, scenario: impl Fn(&mut Run)) {
    let all = calls_of(name, &scenario);
    for first in 1..=all.len() {
        run(name, (Which::From(first), BROKEN, false), &scenario);
    }
}
