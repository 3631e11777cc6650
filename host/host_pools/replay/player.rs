//! Plays a script on a pool: makes and times its calls, and records after each allocation the
//! memory that the pool holds.
//!
//! Calls are made by one thread, or by the threads that the script names:
//!
//! ```text
//!   step      0     1     2     3     4
//!   thread A  alloc ─────────── free
//!   thread B        alloc ─────────── alloc
//!   thread C              free
//! ```
//!
//! A, B and C wait for their turns, so that the calls run in the order of the script.
//!
//! I1: `blocks[slot]` is set if and only if the slot is allocated and not yet freed. I2: `live` is
//! the sum of the sizes of those slots. I3: only the thread of step `next` makes a call.

use super::script::{Action, Script, Step};
use crate::driver::Stream;
use crate::error::{Error, InvalidConfig, InvalidRequest, Result};
use crate::host_pools::DeviceAllocator;
use crate::lock::{lock, wait_while};
use serde::Serialize;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};
use warpheap_device::kernel::DevicePtr;

/// The most threads. On the CPU each has a stream with a thread of its own.
const MAX_THREADS: usize = 1024;

/// The host threads that make the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// The calling thread makes all calls.
    One,
    /// As many threads as in the log, each makes its own calls.
    AsLogged,
}

/// Creates as many streams on the pool's device as the script has.
fn streams(script: &Script, pool: &dyn DeviceAllocator) -> Result<Vec<Stream>> {
    (0..script.streams).map(|_| pool.device().stream()).collect()
}

/// Fails for more threads than there can be.
pub(super) fn check_threads(hosts: Hosts, count: usize) -> Result<()> {
    if hosts == Hosts::One || count <= MAX_THREADS {
        return Ok(());
    }
    let (given, why) = (count.to_string(), format!("it must be at most {MAX_THREADS}"));
    Err(InvalidConfig::Pool { setting: "threads", given, why }.into())
}

/// Makes all calls of a script, and then frees the remaining blocks.
///
/// # Errors
/// [`Error::InvalidConfig`] for more than 1024 threads. `NoThread` if the system cannot start a
/// thread. Any error of a call, except for a failed allocation or a rejected free.
///
/// # Panics
/// If a step names a slot, a thread or a stream that the script does not have.
pub fn play(script: &Script, pool: &dyn DeviceAllocator, hosts: Hosts) -> Result<Played> {
    check_threads(hosts, script.threads)?;
    let streams = streams(script, pool)?;
    let mut session = Session::new(script, pool, &streams);
    match hosts {
        Hosts::One => script.steps.iter().try_for_each(|step| session.step(step))?,
        Hosts::AsLogged => session = in_turns(session)?,
    }
    session.finish()
}

/// Makes all calls of a script on the calling thread and returns the time; failed allocations are
/// skipped.
///
/// # Errors
/// Any error of a call, except for a failed allocation.
///
/// # Panics
/// If a step names a slot or a stream that the script does not have.
pub fn time(script: &Script, pool: &dyn DeviceAllocator) -> Result<Duration> {
    let streams = streams(script, pool)?;
    let mut blocks = vec![None; script.layouts.len()];
    let start = Instant::now();
    for step in &script.steps {
        let (layout, stream) = (script.layouts[step.slot], &streams[step.stream]);
        match step.action {
            Action::Alloc => match pool.allocate(layout, stream) {
                Ok(ptr) => blocks[step.slot] = Some(ptr),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            },
            Action::Free => {
                let Some(ptr) = blocks[step.slot].take() else { continue };
                // SAFETY: allocated by an earlier step, taken out of its slot, and never passed to
                // a kernel.
                unsafe { pool.deallocate(ptr, layout, stream) }?;
            }
        }
    }
    let took = start.elapsed();
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok(took)
}

/// Result of a script. Times are in nanoseconds, the rest in bytes.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Times of successful allocations.
    pub alloc_nanos: Vec<f64>,
    /// Times of successful frees.
    pub free_nanos: Vec<f64>,
    /// Time of all calls, including failed ones.
    pub nanos: f64,
    /// High-water mark of live bytes, by requested sizes.
    pub peak_live: u64,
    /// High-water mark of live bytes, as rounded up by the pool.
    pub peak_used: u64,
    /// High-water mark of bytes that the pool reserved on the device.
    pub peak_reserved: u64,
    /// Allocations that failed because the pool was out of memory or does not support them.
    pub failed_allocations: Failed,
    /// Frees that were skipped because the allocation had failed.
    pub frees_left_out: u64,
    /// Frees that the pool rejected.
    pub failed_frees: Failed,
    /// Bytes in use after all blocks were freed, as reported by the pool.
    pub used_at_end: u64,
}

/// Number of failed calls, and the error of the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// Number of failures.
    pub count: u64,
    /// The pool's message.
    pub first: Option<String>,
}

impl Failed {
    fn add(&mut self, error: &Error) {
        self.count += 1;
        self.first.get_or_insert_with(|| error.to_string());
    }
}

/// A script that is played on a pool.
struct Session<'a> {
    script: &'a Script,
    pool: &'a dyn DeviceAllocator,
    streams: &'a [Stream],
    blocks: Vec<Option<DevicePtr<u8>>>,
    live: u64,
    played: Played,
}

impl<'a> Session<'a> {
    /// `streams` are those of the script.
    fn new(script: &'a Script, pool: &'a dyn DeviceAllocator, streams: &'a [Stream]) -> Session<'a> {
        let blocks = vec![None; script.layouts.len()];
        Session { script, pool, streams, blocks, live: 0, played: Played::default() }
    }

    /// Makes one call.
    ///
    /// # Errors
    /// Any error, except for a failed allocation or a rejected free.
    fn step(&mut self, step: &Step) -> Result<()> {
        match step.action {
            Action::Alloc => self.allocate(step),
            Action::Free => self.free(step),
        }
    }

    fn allocate(&mut self, step: &Step) -> Result<()> {
        let (layout, stream) = (self.script.layouts[step.slot], &self.streams[step.stream]);
        let start = Instant::now();
        let done = self.pool.allocate(layout, stream);
        let nanos = start.elapsed().as_nanos() as f64;
        self.played.nanos += nanos;
        match done {
            Ok(ptr) => {
                self.blocks[step.slot] = Some(ptr);
                self.live += layout.size() as u64;
                self.played.alloc_nanos.push(nanos);
                self.look();
                Ok(())
            }
            Err(error) if is_refusal(&error) => {
                self.played.failed_allocations.add(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Records the memory that the pool holds. Live bytes peak right after an allocation.
    fn look(&mut self) {
        let (usage, played) = (self.pool.usage(), &mut self.played);
        played.peak_live = played.peak_live.max(self.live);
        played.peak_used = played.peak_used.max(usage.used_bytes);
        played.peak_reserved = played.peak_reserved.max(usage.reserved_bytes);
    }

    fn free(&mut self, step: &Step) -> Result<()> {
        let Some(ptr) = self.blocks[step.slot] else {
            self.played.frees_left_out += 1;
            return Ok(());
        };
        let (layout, stream) = (self.script.layouts[step.slot], &self.streams[step.stream]);
        let start = Instant::now();
        // SAFETY: allocated by an earlier step, not freed since (I1), and never passed to a kernel.
        let done = unsafe { self.pool.deallocate(ptr, layout, stream) };
        let nanos = start.elapsed().as_nanos() as f64;
        self.played.nanos += nanos;
        match done {
            Ok(()) => {
                self.blocks[step.slot] = None;
                self.live -= layout.size() as u64;
                self.played.free_nanos.push(nanos);
                Ok(())
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                self.played.failed_frees.add(&error);
                Ok(())
            }
        }
    }

    /// Frees the blocks that the script did not free or the pool rejected. Not timed.
    fn finish(mut self) -> Result<Played> {
        for (slot, block) in self.blocks.iter_mut().enumerate() {
            let Some(ptr) = block.take() else { continue };
            // SAFETY: allocated by an earlier step, not freed since (I1), and never passed to a
            // kernel.
            match unsafe { self.pool.deallocate(ptr, self.script.layouts[slot], &self.streams[0]) } {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => self.played.failed_frees.add(&error),
                Ok(()) => {}
            }
        }
        self.streams.iter().try_for_each(Stream::synchronize)?;
        self.played.used_at_end = self.pool.usage().used_bytes;
        Ok(self.played)
    }
}

/// Whether the pool is unaffected, and is only out of memory or does not support such a layout.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_)
            | Error::InvalidRequest(InvalidRequest::Layout { .. } | InvalidRequest::Alignment { .. })
            | Error::FailureInjected { .. }
    )
}

/// The threads of a script, which take turns.
struct Turns<'a> {
    state: Mutex<State<'a>>,
    /// One per thread.
    called: Vec<Condvar>,
}

struct State<'a> {
    session: Session<'a>,
    /// Number of the step that is next.
    next: usize,
    /// Set if all threads must stop, with the error if there was one.
    stopped: Option<Option<Error>>,
}

/// Makes all calls, each on the thread that the script names.
fn in_turns(session: Session<'_>) -> Result<Session<'_>> {
    let script = session.script;
    let called = (0..script.threads).map(|_| Condvar::new()).collect();
    let turns = Turns { state: Mutex::new(State { session, next: 0, stopped: None }), called };
    let mut steps = vec![Vec::new(); script.threads];
    script.steps.iter().enumerate().for_each(|(number, step)| steps[step.thread].push(number));
    thread::scope(|scope| {
        // Held until all threads have started, so that no call is made without one of them.
        let mut state = turns.state();
        for (thread, steps) in steps.iter().enumerate() {
            let turns = &turns;
            let worker = move || turns.work(thread, steps);
            let started = may_start().and_then(|()| Builder::new().spawn_scoped(scope, worker));
            if let Err(error) = started {
                state.stopped = Some(Some(no_thread(&error)));
                return;
            }
        }
    });
    let state = turns.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.stopped {
        Some(Some(error)) => Err(error),
        _ => Ok(state.session),
    }
}

fn no_thread(error: &io::Error) -> Error {
    Error::NoThread {
        what: "calls of a pool",
        why: error.to_string(),
        advice: "use fewer host threads, or raise the system's limits on threads and mappings",
    }
}

#[cfg(not(test))]
fn may_start() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use planted::may_start;

impl<'s> Turns<'s> {
    fn work(&self, thread: usize, steps: &[usize]) {
        let _stop = StopOnPanic(self);
        for number in steps {
            let wait = |state: &mut State<'_>| state.stopped.is_none() && state.next != *number;
            let mut state = wait_while(&self.called[thread], self.state(), wait);
            if state.stopped.is_some() {
                return;
            }
            let script = state.session.script;
            if let Err(error) = state.session.step(&script.steps[*number]) {
                drop(state);
                return self.stop(Some(error));
            }
            state.next += 1;
            if let Some(next) = script.steps.get(state.next).filter(|next| next.thread != thread) {
                self.called[next.thread].notify_one();
            }
        }
    }

    fn stop(&self, error: Option<Error>) {
        self.state().stopped.get_or_insert(error);
        self.called.iter().for_each(Condvar::notify_all);
    }

    fn state(&self) -> MutexGuard<'_, State<'s>> {
        lock(&self.state)
    }
}

/// Stops the other threads if the pool panics, because they would wait for ever.
struct StopOnPanic<'a, 's>(&'a Turns<'s>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop(None);
        }
    }
}

/// Threads that the system does not start.
#[cfg(test)]
pub(super) mod planted {
    use std::cell::Cell;
    use std::io;

    thread_local!(static LEFT: Cell<usize> = const { Cell::new(usize::MAX) });

    /// The calling thread can start `count` threads more.
    pub fn allow(count: usize) {
        LEFT.set(count);
    }

    pub(super) fn may_start() -> io::Result<()> {
        let left = LEFT.get().checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
        LEFT.set(left);
        Ok(())
    }
}
