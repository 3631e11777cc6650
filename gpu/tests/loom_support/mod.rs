//! Common parts of the model-checked tests: lanes with an index, runs of a model, and weakened
//! orderings.
//!
//! In the model, each thread is a lane that has a warp to itself.

#[path = "../support/lane.rs"]
mod lane;

use lane::Apart;
use loom::cell::UnsafeCell;
use loom::model::Builder;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpheap_device::machine;
use warpheap_device::sync::weaken;

loom::thread_local! {
    static LANE: Cell<u32> = Cell::new(0);
}

/// Runs `body` as lane `lane`: the only one of warp `lane`, on SM `lane`.
pub fn at<R>(lane: u32, body: impl FnOnce() -> R) -> R {
    let before = LANE.with(|p| p.replace(lane));
    let answer = body();
    LANE.with(|p| p.set(before));
    answer
}

/// Spawns a thread of the model as lane `lane`, as in [`at`].
pub fn spawn<R: 'static>(lane: u32, body: impl FnOnce() -> R + 'static) -> loom::thread::JoinHandle<R> {
    loom::thread::spawn(move || at(lane, body))
}

/// Spawns a thread of the model that shares `structure`, as lane `lane`.
pub fn with<T: 'static, R: 'static>(
    structure: &Arc<T>,
    lane: u32,
    body: impl FnOnce(&T) -> R + 'static,
) -> loom::thread::JoinHandle<R> {
    let structure = structure.clone();
    spawn(lane, move || body(&structure))
}

/// Runs two threads of a model that share `structure`, as these lanes, to their ends. Neither is
/// the model's main thread: loom 0.7.3 was seen to leave out orders in which that one's operations
/// come late.
#[allow(dead_code, reason = "the models of the arena have any number of threads")]
pub fn both_at<T: 'static, A: 'static, B: 'static>(
    lanes: [u32; 2],
    structure: &Arc<T>,
    first: impl FnOnce(&T) -> A + 'static,
    second: impl FnOnce(&T) -> B + 'static,
) -> (A, B) {
    let (first, second) = (with(structure, lanes[0], first), with(structure, lanes[1], second));
    (first.join().unwrap(), second.join().unwrap())
}

/// `both_at` with both threads as lane 0.
#[allow(dead_code, reason = "the models of the arena have any number of threads")]
pub fn both<T: 'static, A: 'static, B: 'static>(
    structure: &Arc<T>,
    first: impl FnOnce(&T) -> A + 'static,
    second: impl FnOnce(&T) -> B + 'static,
) -> (A, B) {
    both_at([0; 2], structure, first, second)
}

/// A plain value per block that only the block's owner may access: the model reports two threads
/// that access one without an order.
#[allow(dead_code, reason = "the arena has no blocks")]
pub struct Values<T>(Vec<UnsafeCell<T>>);

// SAFETY: only the owner of a block accesses its value: the model checks this.
unsafe impl<T> Sync for Values<T> {}
// SAFETY: only the owner of a block accesses its value: the model checks this.
unsafe impl<T> Send for Values<T> {}

#[allow(dead_code, reason = "the arena has no blocks")]
impl<T: Default> Values<T> {
    pub fn new(count: usize) -> Self {
        Values((0..count).map(|_| UnsafeCell::new(T::default())).collect())
    }

    /// Accesses the value of block `i` as its owner.
    pub fn access<R>(&self, i: usize, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the model reports any concurrent access.
        self.0[i].with_mut(|value| f(unsafe { &mut *value }))
    }
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

/// The maximum number of preemptions that a model explores, unless it sets a smaller one.
#[allow(dead_code, reason = "the models of the arena have a smaller bound")]
pub const PREEMPTIONS: usize = 9;

/// A model whose threads are preempted at most `preemptions` times.
pub const fn model(preemptions: usize, run: fn()) -> Model {
    Model { preemptions, run }
}

/// Declares a test for each model: it must hold.
macro_rules! holds {
    ($($name:ident: $model:ident;)+) => {$(
        #[test]
        fn $name() {
            $model.holds();
        }
    )+};
}

impl Model {
    fn explore(self) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.max_branches = 20_000;
        // The model runs all its threads on one OS thread, so one machine serves all of them.
        let lanes = Apart { lane: || LANE.with(Cell::get), pause: loom::thread::yield_now };
        // SAFETY: the machine outlives the guard, which is the only one here.
        let _installed = unsafe { machine::install(&lanes) };
        builder.check(self.run);
    }

    /// Explores the model, which must hold.
    pub fn holds(self) {
        let _alone = alone();
        self.explore();
    }

    /// Explores the model, which must fail with a message that contains `why`.
    #[allow(dead_code, reason = "few models must fail as they are")]
    pub fn fails(self, why: &str) {
        let _alone = alone();
        let broken = catch_unwind(AssertUnwindSafe(|| self.explore()));
        let payload = broken.expect_err("no run of the model is wrong");
        let said = payload.downcast_ref::<String>().map_or("no text", String::as_str);
        assert!(said.contains(why), "the model fails, but with {said:?}");
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

/// Checks that each of `sites` is in the list, and that each model of the list fails without the
/// ordering of its site, with a message that contains the text. Of the sites `acq_rel`, which
/// acquire and release, both halves are in the list instead.
pub fn every_site_is_needed(sites: &[&str], acq_rel: &[&str], noticed_by: &[(&str, Model, &str)]) {
    let named: BTreeSet<_> = noticed_by.iter().map(|(site, ..)| site.to_string()).collect();
    let halves = acq_rel.iter().flat_map(|site| ["acquire", "release"].map(|half| format!("{site}:{half}")));
    let whole = sites.iter().filter(|site| !acq_rel.contains(site)).map(|site| site.to_string());
    assert_eq!(named, whole.chain(halves).collect());
    for (site, model, why) in noticed_by {
        model.notices(site, why);
    }
}
