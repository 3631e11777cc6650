//! Common parts of the model-checked tests: lanes with a place, runs of a model, and weakened
//! orderings.
//!
//! In the model, each thread is a lane that has a warp to itself.

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

/// Runs `body` as a lane of warp `place` on SM `place`.
pub fn at<R>(place: u32, body: impl FnOnce() -> R) -> R {
    let before = PLACE.with(|p| p.replace(place));
    let answer = body();
    PLACE.with(|p| p.set(before));
    answer
}

/// Spawns a thread of the model as a lane of warp `place` on SM `place`.
pub fn spawn<R: 'static>(place: u32, body: impl FnOnce() -> R + 'static) -> loom::thread::JoinHandle<R> {
    loom::thread::spawn(move || at(place, body))
}

/// Runs one model at a time: a weakened site is weak in the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program to model-check, and the number of preemptions to explore.
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
        // The model runs all its threads on one OS thread, so one machine serves all of them.
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

    /// Explores the model with the ordering of `site` weakened. It must fail with a message that
    /// contains `why`: a model that fails for another reason proves nothing about the ordering.
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
