//! A script on the threads that it names.
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
//! I1: only the thread of step `next` makes a call.

use super::session::Session;
use crate::threads::start;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use warpheap::{Error, Result};

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
pub(super) fn in_turns(session: Session<'_>) -> Result<Session<'_>> {
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
            if let Err(error) = start(scope, worker) {
                state.stopped = Some(Some(error));
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

impl<'s> Turns<'s> {
    fn work(&self, thread: usize, steps: &[usize]) {
        let _stop = StopOnPanic(self);
        for number in steps {
            let wait = |state: &mut State<'_>| state.stopped.is_none() && state.next != *number;
            let woken = self.called[thread].wait_while(self.state(), wait);
            let mut state = woken.unwrap_or_else(PoisonError::into_inner);
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
