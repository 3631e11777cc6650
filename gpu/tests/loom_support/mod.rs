//! What the model-checked tests share: lanes with a place, runs of a model, and weakened orderings.
//!
//! In the model a lane is a thread and has its warp for itself.

#[path = "../support/lane.rs"]
mod lane;

use lane::Apart;
use loom::model::Builder;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpheap_device::machine;
use warpheap_device::sync::weaken;

loom::thread_local! {
    static PLACE: Cell<u32> = Cell::new(0);
}

/// Runs `body` as a lane of warp `place` on multiprocessor `place`.
pub fn at<R>(place: u32, body: impl FnOnce() -> R) -> R {
    let before = PLACE.with(|p| p.replace(place));
    let answer = body();
    PLACE.with(|p| p.set(before));
    answer
}

/// A thread of the model as a lane of warp `place` on multiprocessor `place`.
pub fn spawn<R: 'static>(place: u32, body: impl FnOnce() -> R + 'static) -> loom::thread::JoinHandle<R> {
    loom::thread::spawn(move || at(place, body))
}

/// One model at a time: a weakened site is weak for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program of the model, and how many preemptions of it are explored.
#[derive(Clone, Copy)]
pub struct Model {
    pub preemptions: usize,
    pub run: fn(),
}

impl Model {
    fn explore(self) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.max_branches = 20_000;
        // The model runs all its threads on one OS thread, so one machine serves them all.
        let lanes = Apart { place: || PLACE.with(Cell::get), pause: loom::thread::yield_now };
        // SAFETY: the machine outlives the guard, which is the only one here.
        let _installed = unsafe { machine::install(&lanes) };
        builder.check(self.run);
    }

    /// Explores the model, which must hold.
    pub fn holds(self) {
        let _alone = alone();
        self.explore();
    }

    /// Explores the model with the ordering called `site` dropped, which must break it, and with a message
    /// that holds `why`: a model that fails of something else shows nothing about the ordering.
    pub fn notices(self, site: &str, why: &str) {
        let _alone = alone();
        let broken = weaken(site, || catch_unwind(AssertUnwindSafe(|| self.explore())));
        let Err(payload) = broken else {
            panic!("no run of the model is wrong without the ordering of {site}")
        };
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no text");
        assert!(said.contains(why), "without the ordering of {site} the model fails, but with {said:?}");
    }
}
