//! Mutual exclusion between host copies and stream work.
//!
//! Either `jobs` kernels and copies of streams run, or `copies` host copies, never both:
//! `jobs == 0 || copies == 0`. So a host copy never races with a kernel, not even with one that
//! another thread launched after the wait that precedes the copy.
//!
//! A waiting copy does not block new jobs: a kernel that it waits for may itself wait for a kernel
//! that has not started. Jobs wait only for active copies, which always finish.

use crate::lock::{lock, wait_while};
use std::sync::{Condvar, Mutex};

#[derive(Default)]
pub(super) struct CopyExclusion {
    active: Mutex<Active>,
    /// Signalled when one of the counters becomes 0.
    empty: Condvar,
}

#[derive(Default)]
struct Active {
    jobs: usize,
    copies: usize,
}

/// Selects one of the counters.
type Counter = fn(&mut Active) -> &mut usize;

const JOBS: Counter = |active| &mut active.jobs;
const COPIES: Counter = |active| &mut active.copies;

/// A job or a host copy, active until this is dropped.
#[must_use]
pub(super) struct ActiveGuard<'a> {
    exclusion: &'a CopyExclusion,
    counter: Counter,
}

impl CopyExclusion {
    /// Begins a kernel or a copy of a stream. Waits until no host copy is active.
    pub fn job(&self) -> ActiveGuard<'_> {
        self.begin(JOBS, COPIES)
    }

    /// Begins a host copy. Waits until no stream runs a job.
    pub fn copy(&self) -> ActiveGuard<'_> {
        self.begin(COPIES, JOBS)
    }

    fn begin(&self, counter: Counter, other: Counter) -> ActiveGuard<'_> {
        let mut active = wait_while(&self.empty, lock(&self.active), |active| *other(active) > 0);
        *counter(&mut active) += 1;
        ActiveGuard { exclusion: self, counter }
    }
}

impl Drop for ActiveGuard<'_> {
    fn drop(&mut self) {
        let mut active = lock(&self.exclusion.active);
        let count = (self.counter)(&mut active);
        *count -= 1;
        if *count == 0 {
            drop(active);
            self.exclusion.empty.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn a_copy_waits_for_jobs_and_lets_others_begin_meanwhile() {
        let exclusion = CopyExclusion::default();
        let first = exclusion.job();
        let copied = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _active = exclusion.copy();
                copied.store(true, Ordering::SeqCst);
            });
            let second = exclusion.job();
            drop(first);
            let third = exclusion.job();
            assert!(!copied.load(Ordering::SeqCst));
            drop((second, third));
        });
        assert!(copied.load(Ordering::SeqCst));
    }

    #[test]
    fn a_job_waits_for_copies() {
        let exclusion = CopyExclusion::default();
        let copies = (exclusion.copy(), exclusion.copy());
        let ran = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _active = exclusion.job();
                ran.store(true, Ordering::SeqCst);
            });
            drop(copies.0);
            assert!(!ran.load(Ordering::SeqCst));
            drop(copies.1);
        });
        assert!(ran.load(Ordering::SeqCst));
    }
}
