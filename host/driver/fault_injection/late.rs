//! Streams whose work runs as late as the recorded orders permit.
//!
//! ```text
//! stream 0   kernel │ kernel ◆ │ kernel        ◆ point: stream 0, 2 jobs
//! stream 1   kernel │ wait ◆ │ kernel          runs only after the point
//!                   └ jobs done: 1
//! ```
//!
//! A stream is a queue of jobs, and nothing runs them but a wait of the host, [`run_some`] and,
//! with a probability, each driver call: the device goes on between two calls of the host. A wait
//! of the host runs only the jobs that it waits for. One thread runs all jobs, and the seed selects
//! which: the same calls lead to the same order.
//!
//! I1: the jobs of a stream run in the order of their submission. I2: a wait is done only after all
//! jobs before its point.
//!
//! [`run_some`]: LateStreams::run_some

use crate::driver::backend::{CpuJob, EventBackend, Launch, StreamBackend, Transfer, Transfers, own_event};
use crate::driver::{Device, Event};
use crate::error::Result;
use crate::lock::lock;
use crate::simt::{Executor, Mode};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The first `jobs` jobs of a stream.
#[derive(Clone, Copy)]
struct Point {
    stream: usize,
    jobs: usize,
}

enum Job {
    Kernel(CpuJob),
    Wait(Point),
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    done: usize,
}

/// The streams of a device.
pub(crate) struct LateStreams {
    state: Mutex<State>,
    executor: Executor,
    /// A driver call runs a job with a probability of one in this many; never if 0.
    one_in: u64,
}

struct State {
    streams: Vec<Jobs>,
    rng: Pcg64Mcg,
}

impl State {
    fn is_done(&self, point: Point) -> bool {
        self.streams[point.stream].done >= point.jobs
    }

    /// The unfinished point that the next job of the stream waits for.
    fn awaited(&self, stream: usize) -> Option<Point> {
        match self.streams[stream].queue.front() {
            Some(Job::Wait(point)) if !self.is_done(*point) => Some(*point),
            _ => None,
        }
    }

    /// Any stream with a job that can run now.
    fn any_runnable(&mut self) -> Option<usize> {
        let runnable: Vec<usize> = (0..self.streams.len())
            .filter(|stream| !self.streams[*stream].queue.is_empty() && self.awaited(*stream).is_none())
            .collect();
        let number = self.rng.next_u64() as usize;
        (!runnable.is_empty()).then(|| runnable[number % runnable.len()])
    }
}

impl LateStreams {
    pub fn new(seed: u64, one_in: u64) -> Arc<LateStreams> {
        let state = State { streams: Vec::new(), rng: Pcg64Mcg::seed_from_u64(seed) };
        let executor = Executor::new(Mode::Replay { seed });
        Arc::new(LateStreams { state: Mutex::new(state), executor, one_in })
    }

    pub(super) fn add(self: &Arc<Self>) -> LateStream {
        let mut state = lock(&self.state);
        state.streams.push(Jobs::default());
        LateStream { all: self.clone(), number: state.streams.len() - 1 }
    }

    /// Runs the next job of a stream, which can run now (I1, I2).
    fn run_next(&self, stream: usize) {
        let job = lock(&self.state).streams[stream].queue.pop_front();
        if let Some(Job::Kernel(kernel)) = job {
            kernel(&self.executor).unwrap_or_else(|error| panic!("a kernel failed: {error}"));
        }
        lock(&self.state).streams[stream].done += 1;
    }

    /// Runs up to `jobs` jobs, each of any stream that can run. Returns how many it ran.
    pub fn run_some(&self, jobs: usize) -> usize {
        let next = || lock(&self.state).any_runnable();
        (0..jobs).map_while(|_| next()).map(|stream| self.run_next(stream)).count()
    }

    /// Runs the jobs before a point, and those that they wait for. There are no cycles: a wait is
    /// for jobs that were submitted before it.
    fn run_to(&self, point: Point) {
        let mut path = vec![point];
        while let Some(last) = path.last().copied() {
            let state = lock(&self.state);
            if state.is_done(last) {
                path.pop();
            } else if let Some(other) = state.awaited(last.stream) {
                path.push(other);
            } else {
                drop(state);
                self.run_next(last.stream);
            }
        }
    }

    pub(super) fn run_all(&self) {
        self.run_some(usize::MAX);
    }

    /// The device goes on while the host makes a driver call.
    fn during_call(&self) {
        let runs = self.one_in > 0 && lock(&self.state).rng.next_u64().is_multiple_of(self.one_in);
        self.run_some(usize::from(runs));
    }
}

pub(super) struct LateStream {
    all: Arc<LateStreams>,
    number: usize,
}

impl LateStream {
    fn push(&self, job: Job) {
        lock(&self.all.state).streams[self.number].queue.push_back(job);
    }

    /// After all jobs that were submitted so far.
    fn last(&self) -> Point {
        let state = lock(&self.all.state);
        let Jobs { queue, done } = &state.streams[self.number];
        Point { stream: self.number, jobs: done + queue.len() }
    }
}

impl Transfers for LateStream {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        unreachable!("only kernels run late: {transfer:?}")
    }
}

impl StreamBackend for LateStream {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.push(Job::Kernel((launch.cpu_job)()));
        Ok(())
    }

    fn record(&self) -> Result<Arc<dyn EventBackend>> {
        self.all.during_call();
        Ok(Arc::new(LateEvent { all: self.all.clone(), point: self.last() }))
    }

    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()> {
        self.all.during_call();
        self.push(Job::Wait(own_event::<LateEvent>(&*event).point));
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.all.run_to(self.last());
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        Ok(self.is_idle())
    }

    fn is_idle(&self) -> bool {
        self.all.during_call();
        let last = self.last();
        lock(&self.all.state).is_done(last)
    }

    fn raw(&self) -> *mut c_void {
        std::ptr::null_mut()
    }
}

struct LateEvent {
    all: Arc<LateStreams>,
    point: Point,
}

impl EventBackend for LateEvent {
    fn is_done(&self) -> Result<bool> {
        self.all.during_call();
        Ok(lock(&self.all.state).is_done(self.point))
    }

    fn synchronize(&self) -> Result<()> {
        self.all.run_to(self.point);
        Ok(())
    }

    fn elapsed(&self, _: &dyn EventBackend) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}

// An event that a test triggers: it blocks a stream of the CPU until then.

#[derive(Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// A closed gate, and the event that happens when it opens. The gate must be opened, because each
/// stream that waits for it blocks a thread.
pub(crate) fn gate(device: &Device) -> (Event, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    (Event::new(device.clone(), gate.clone()), gate)
}

impl Gate {
    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub fn is_open(&self) -> bool {
        *self.is_open.lock().unwrap()
    }
}

impl EventBackend for Gate {
    fn is_done(&self) -> Result<bool> {
        Ok(self.is_open())
    }

    fn synchronize(&self) -> Result<()> {
        let closed = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(closed, |is_open| !*is_open).unwrap());
        Ok(())
    }

    fn elapsed(&self, _: &dyn EventBackend) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}
