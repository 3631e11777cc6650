//! Keeps what the host copies apart from what streams run.
//!
//! `jobs` kernels and copies of streams run, or `copies` of the host, never both:
//! `jobs == 0 || copies == 0`. So a copy of the host never races with a kernel, not even with one
//! that another thread has launched since the wait before the copy.
//!
//! A copy waits without being in the way of jobs: a kernel that it waits for may itself wait for
//! one that has not begun. Jobs wait for copies alone, and those end by themselves.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Rooms {
    inside: Mutex<Inside>,
    /// One of the two has become 0.
    empty: Condvar,
}

#[derive(Default)]
struct Inside {
    jobs: usize,
    copies: usize,
}

/// Jobs or copies.
type Room = fn(&mut Inside) -> &mut usize;

const JOBS: Room = |inside| &mut inside.jobs;
const COPIES: Room = |inside| &mut inside.copies;

/// Leaves at its end.
#[must_use]
pub(super) struct Stay<'a> {
    rooms: &'a Rooms,
    room: Room,
}

impl Rooms {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a kernel or a copy of a stream: waits until the host copies nothing.
    pub fn run_job(&self) -> Stay<'_> {
        self.enter(JOBS, COPIES)
    }

    /// For a copy of the host: waits until no stream runs anything.
    pub fn copy(&self) -> Stay<'_> {
        self.enter(COPIES, JOBS)
    }

    fn enter(&self, room: Room, other: Room) -> Stay<'_> {
        let mut inside = self.inside();
        while *other(&mut inside) > 0 {
            inside = self.empty.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        *room(&mut inside) += 1;
        Stay { rooms: self, room }
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        let mut inside = self.rooms.inside();
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
