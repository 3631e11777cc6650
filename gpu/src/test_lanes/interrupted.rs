//! A lane that is alone in its grid, and interrupted before its atomic operations.

use crate::machine::{Coords, Machine, install};
use core::cell::{Cell, RefCell};
use std::vec::Vec;

/// The only lane of its warp.
struct Interrupted<F> {
    other: RefCell<F>,
    steps: Cell<u32>,
    pauses: RefCell<Vec<u32>>,
}

// SAFETY: the lane is alone in its grid: it waits for no other, and is the only one at a location.
unsafe impl<F: FnMut(u32)> Machine for Interrupted<F> {
    fn coords(&self) -> Coords {
        Coords::SOLE
    }

    fn step(&self) {
        // Not before its own operations.
        if let Ok(mut other) = self.other.try_borrow_mut() {
            let step = self.steps.get();
            self.steps.set(step + 1);
            other(step);
        }
    }

    fn pause(&self, nanos: u32) {
        self.pauses.borrow_mut().push(nanos);
    }
}

/// What an interrupted lane did.
pub struct Ran<R> {
    pub result: R,
    /// Atomic operations.
    pub steps: u32,
    /// The length of each pause in nanoseconds.
    pub pauses: Vec<u32>,
}

/// Runs `run` on a lone lane. Before each of its atomic operations, `other` does what another
/// thread does there. It gets the number of operations before.
pub fn interrupted<R>(other: impl FnMut(u32), run: impl FnOnce() -> R) -> Ran<R> {
    let machine = Interrupted { other: RefCell::new(other), steps: Cell::new(0), pauses: RefCell::default() };
    // SAFETY: the machine outlives the guard, which is dropped first.
    let installed = unsafe { install(&machine) };
    let result = run();
    drop(installed);
    Ran { result, steps: machine.steps.get(), pauses: machine.pauses.take() }
}

/// Runs `run` on a lone lane, with `other` as another thread before operation number `at`. Returns
/// the result and whether there was such an operation.
pub fn interrupted_at<R>(at: u32, other: impl FnOnce(), run: impl FnOnce() -> R) -> (R, bool) {
    let mut other = Some(other);
    let ran = interrupted(
        |step| {
            if step == at {
                other.take().into_iter().for_each(|other| other());
            }
        },
        run,
    );
    (ran.result, ran.steps > at)
}
