//! The queue of a stream on the CPU, and an OS thread that executes its jobs.
//!
//! ```text
//!   host threads ── push ──► jobs ── worker ──► Executor::run, memcpy, events
//! ```
//!
//! I1: jobs run in the order of their pushes, one at a time.
//! I2: `pending` counts the jobs that were pushed and have not ended.
//! I3: after a failure no work runs, but events still complete, so that no waiter blocks forever.
//! I4: the worker ends when the stream is closed and the queue is empty.

use super::copy_exclusion::CopyExclusion;
use super::memory;
use crate::driver::backend::{CpuJob, EventBackend, Transfer, own_event};
use crate::driver::check_process;
use crate::driver::panics::panicked;
use crate::error::{Error, InvalidRequest, KernelFault, Result};
use crate::lock::{lock, wait_while};
use crate::simt::{Executor, Panic, SimtError, Stats, message};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use warpheap_sim::threads::counted;

pub(super) enum Job {
    Kernel(&'static str, CpuJob),
    /// Its caller keeps the memory valid until the job is done.
    Memory(Transfer),
    Record(Arc<CpuEvent>),
    Wait(Arc<dyn EventBackend>),
}

#[derive(Default)]
pub(super) struct JobQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    pending: usize,
    /// The host side was dropped.
    closed: bool,
    failed: Option<Error>,
    reported: bool,
    last: Option<Stats>,
}

impl State {
    /// Whether the stream is closed and either succeeded or its failure was reported.
    fn is_settled(&self) -> bool {
        self.closed && (self.failed.is_none() || self.reported)
    }

    /// Reports a failure, if there is one.
    fn outcome(&mut self) -> Result<()> {
        self.reported = self.failed.is_some();
        self.failed.clone().map_or(Ok(()), Err)
    }
}

impl JobQueue {
    /// Starts a worker, which ends on its own (I4).
    pub fn start(
        executor: Arc<Executor>,
        exclusion: Arc<CopyExclusion>,
        panics: Arc<Panics>,
    ) -> Result<Arc<JobQueue>> {
        let queue = Arc::new(JobQueue::default());
        let jobs = queue.clone();
        let worker = thread::Builder::new().name("warpheap-stream".into());
        let work = counted(move || jobs.work(&executor, &exclusion, &panics));
        work.and_then(|work| worker.spawn(work)).map_err(|error| no_thread(&error))?;
        Ok(queue)
    }

    /// No job is pushed any more.
    pub fn close(&self) {
        let Ok(mut state) = self.state() else { return };
        state.closed = true;
        self.changed.notify_all();
    }

    /// The state, except in a forked child: it has no worker, which may have held the lock.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        check_process()?;
        Ok(lock(&self.state))
    }

    /// Waits until all pushed jobs are done, then locks the state.
    fn done(&self) -> Result<MutexGuard<'_, State>> {
        Ok(wait_while(&self.changed, self.state()?, |state| state.pending > 0))
    }

    pub fn push(&self, job: Job) -> Result<()> {
        let mut state = self.state()?;
        if !matches!(job, Job::Record(_)) {
            state.outcome()?;
        }
        state.pending += 1;
        state.jobs.push_back(job);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until all pushed jobs are done.
    pub fn drain(&self) {
        drop(self.done());
    }

    /// Waits until all pushed jobs are done, and reports a failure.
    pub fn synchronize(&self) -> Result<()> {
        self.done()?.outcome()
    }

    /// Waits for a synchronisation of the whole device: a reported failure of a closed stream is
    /// not returned again.
    pub fn settle(&self) -> Result<()> {
        let mut state = self.done()?;
        if state.is_settled() { Ok(()) } else { state.outcome() }
    }

    /// Whether all pushed jobs are done. Reports a failure.
    pub fn is_done(&self) -> Result<bool> {
        let mut state = self.state()?;
        state.outcome().map(|()| state.pending == 0)
    }

    /// Whether all pushed jobs are done. Does not report a failure.
    pub fn is_idle(&self) -> bool {
        self.state().is_ok_and(|state| state.pending == 0)
    }

    pub fn stats(&self) -> Option<Stats> {
        self.state().ok()?.last
    }

    /// Whether there is nothing left to wait for or to report.
    pub fn is_over(&self) -> bool {
        self.state().is_ok_and(|state| state.pending == 0 && state.is_settled())
    }

    /// The worker loop: runs jobs until the stream is closed and the queue is empty (I4).
    fn work(&self, executor: &Executor, exclusion: &CopyExclusion, panics: &Panics) {
        loop {
            let idle = |state: &mut State| state.jobs.is_empty() && !state.closed;
            let mut state = wait_while(&self.changed, lock(&self.state), idle);
            let Some(job) = state.jobs.pop_front() else { return };
            let skip = state.failed.is_some();
            drop(state);
            let outcome = run(job, executor, exclusion, panics, skip);
            let mut state = lock(&self.state);
            match outcome {
                Ok(Some(stats)) => state.last = Some(stats),
                Ok(None) => {}
                Err(error) => state.failed = Some(error),
            }
            state.pending -= 1;
            self.changed.notify_all();
        }
    }
}

/// The error of a stream that cannot start.
fn no_thread(error: &io::Error) -> Error {
    Error::NoThread {
        what: "a stream on the CPU",
        why: error.to_string(),
        advice: "use fewer streams, or raise the system's limits on threads and mappings",
    }
}

/// Runs one job. With `skip`, only jobs that others may wait for (I3).
fn run(
    job: Job,
    executor: &Executor,
    exclusion: &CopyExclusion,
    panics: &Panics,
    skip: bool,
) -> Result<Option<Stats>> {
    let attempt = AssertUnwindSafe(|| match job {
        Job::Record(event) => {
            event.complete();
            Ok(None)
        }
        // Also on a failed stream: an observer of a later event assumes that everything before it
        // is done.
        Job::Wait(event) => event.synchronize().map(|()| None),
        _ if skip => Ok(None),
        Job::Memory(transfer) => {
            let _with_jobs = exclusion.job();
            // SAFETY: the caller of `CpuStream::transfer` promises that the memory is valid until
            // the job is done; freeing waits for that.
            unsafe { memory::transfer(transfer) };
            Ok(None)
        }
        Job::Kernel(kernel, run) => {
            let _with_jobs = exclusion.job();
            match run(executor) {
                Ok(stats) => Ok(Some(stats)),
                Err(SimtError::Panic(panic)) => panics.of_kernel(kernel, *panic).map(|()| None),
                Err(source) => Err(KernelFault::Simt { kernel, source }.into()),
            }
        }
    });
    // The worker must not unwind: the waiters for this job would block forever.
    catch_unwind(attempt)
        .unwrap_or_else(|payload| Err(KernelFault::CpuStream { message: message(payload) }.into()))
}

/// The time at which a stream reached a point.
#[derive(Default)]
pub(super) struct CpuEvent {
    at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl CpuEvent {
    fn complete(&self) {
        *lock(&self.at) = Some(Instant::now());
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<Instant> {
        check_process()?;
        let at = wait_while(&self.changed, lock(&self.at), |at| at.is_none());
        Ok(at.unwrap_or_else(Instant::now))
    }
}

impl EventBackend for CpuEvent {
    fn is_done(&self) -> Result<bool> {
        check_process()?;
        Ok(lock(&self.at).is_some())
    }

    fn synchronize(&self) -> Result<()> {
        self.wait().map(drop)
    }

    fn elapsed(&self, earlier: &dyn EventBackend) -> Result<Duration> {
        let earlier = own_event::<CpuEvent>(earlier).wait()?;
        self.wait()?.checked_duration_since(earlier).ok_or(Error::InvalidRequest(InvalidRequest::EventOrder))
    }
}

/// The queues of a device that may still have pending work or an unreported failure.
#[derive(Default)]
pub(super) struct Queues {
    all: Mutex<Vec<Arc<JobQueue>>>,
}

impl Queues {
    pub fn push(&self, queue: Arc<JobQueue>) {
        lock(&self.all).push(queue);
    }

    /// The queues that are not over. Returns a copy, because callers wait for the queues and must
    /// not hold the lock.
    fn all(&self) -> Vec<Arc<JobQueue>> {
        let mut all = lock(&self.all);
        all.retain(|queue| !queue.is_over());
        all.clone()
    }

    /// Waits for all queues, even after a failure, and returns the first failure.
    pub fn settle(&self) -> Result<()> {
        self.all().iter().map(|queue| queue.settle()).fold(Ok(()), Result::and)
    }

    pub fn drain(&self) {
        self.all().iter().for_each(|queue| queue.drain());
    }
}

/// Panics of threads that ended alone, until a call that waits reports them: their kernels, and the
/// first one with the number of the others.
#[derive(Default)]
pub(super) struct Panics(Mutex<Option<(BTreeSet<&'static str>, Panic)>>);

impl Panics {
    /// The threads of `kernel` that panicked have ended. The grid has ended too if `panic` says so:
    /// then this returns the error of its stream.
    pub fn of_kernel(&self, kernel: &'static str, panic: Panic) -> Result<()> {
        if panic.ended_grid {
            return Err(panicked(&BTreeSet::from([kernel]), panic, "this stream runs nothing more"));
        }
        match &mut *lock(&self.0) {
            Some((kernels, first)) => {
                kernels.insert(kernel);
                first.absorb(&panic);
            }
            none => *none = Some((BTreeSet::from([kernel]), panic)),
        }
        Ok(())
    }

    /// Returns the panics since the last report as an error.
    pub fn report(&self) -> Result<()> {
        let pending = lock(&self.0).take();
        pending.map_or(Ok(()), |(kernels, panic)| Err::<(), Error>(panicked(&kernels, panic, "")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_a_thread_is_no_fault_of_a_kernel() {
        let error = no_thread(&io::Error::from(io::ErrorKind::WouldBlock));
        assert!(!error.is_fatal(), "{error}");
        assert!(error.to_string().starts_with("cannot start a thread for a stream on the CPU: "), "{error}");
    }
}
