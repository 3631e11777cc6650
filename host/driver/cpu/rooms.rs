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
pub(super) struct Rooms {
    inside: Mutex<Inside>,
    /// Signalled when one of the counters becomes 0.
    empty: Condvar,
}

#[derive(Default)]
struct Inside {
    jobs: usize,
    copies: usize,
}

/// Selects one of the counters.
type Room = fn(&mut Inside) -> &mut usize;

const JOBS: Room = |inside| &mut inside.jobs;
const COPIES: Room = |inside| &mut inside.copies;

/// Leaves the room when dropped.
#[must_use]
pub(super) struct Stay<'a> {
    rooms: &'a Rooms,
    room: Room,
}

impl Rooms {
    /// Enters for a kernel or a copy of a stream. Waits until no host copy is active.
    pub fn run_job(&self) -> Stay<'_> {
        self.enter(JOBS, COPIES)
    }

    /// Enters for a host copy. Waits until no stream runs a job.
    pub fn copy(&self) -> Stay<'_> {
        self.enter(COPIES, JOBS)
    }

    fn enter(&self, room: Room, other: Room) -> Stay<'_> {
        let mut inside = wait_while(&self.empty, lock(&self.inside), |inside| *other(inside) > 0);
        *room(&mut inside) += 1;
        Stay { rooms: self, room }
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        let mut inside = lock(&self.rooms.inside);
        let count = (self.room)(&mut inside);
        *count -= 1;
        if *count == 0 {
            drop(inside);
            self.rooms.empty.notify_all();
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
        let rooms = Rooms::default();
        let first = rooms.run_job();
        let copied = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _stay = rooms.copy();
                copied.store(true, Ordering::SeqCst);
            });
            let second = rooms.run_job();
            drop(first);
            let third = rooms.run_job();
            assert!(!copied.load(Ordering::SeqCst));
            drop((second, third));
        });
        assert!(copied.load(Ordering::SeqCst));
    }

    #[test]
    fn a_job_waits_for_copies() {
        let rooms = Rooms::default();
        let copies = (rooms.copy(), rooms.copy());
        let ran = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _stay = rooms.run_job();
                ran.store(true, Ordering::SeqCst);
            });
            drop(copies.0);
            assert!(!ran.load(Ordering::SeqCst));
            drop(copies.1);
        });
        assert!(ran.load(Ordering::SeqCst));
    }
}
