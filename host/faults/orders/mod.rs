//! No pool loses an order: a block that was freed on one stream is used on another only after the
//! work that used it before.
//!
//! Random programs allocate from each pool, use blocks on several streams, free them on any, drop
//! streams with pending work, trim, and drop pools. The streams are `LateStreams`: a kernel runs only
//! when the host waits for it, or when the seed lets it. Two checks find an order that a pool has
//! lost:
//!
//! - The *ledger* keeps vector clocks: each allocation must be ordered after all earlier uses of each
//!   of its bytes. It needs no unlucky timing, finds the loss at the allocation, and names the block.
//! - The *contents*: each kernel that uses a block writes its mark, and checks that of the kernel
//!   before. It does not rely on the clocks, but finds a loss only if the late kernel runs between
//!   two of the next owner's.
//!
//! The first check is the stronger one: with real work, a lost order corrupts data only in the rare
//! order of events that lets the old kernel run last. The second one checks the first: both find the
//! losses of `careless`, and neither finds any in the pools. All work of a program runs in one
//! thread, so that a seed reproduces a failure.

mod careless;
mod kernels;
mod owner;
mod program;
mod subjects;

use self::careless::{Careless, Loss};
pub(super) use self::kernels::launch_write;
use self::program::Program;
use self::subjects::{Make, SUBJECTS, Subject};
use crate::host_pools::RungStats;
use std::sync::Arc;

/// Programs for each pool, and the calls of each.
const SEEDS: u64 = 24;
const STEPS: usize = 400;

/// What a program found: the orders that the ledger misses, and the number of changed words.
struct Found {
    lost: Vec<String>,
    changed: u64,
    rungs: Vec<RungStats>,
}

fn run(subject: &Subject, seed: u64) -> Found {
    let mut program = Program::new(subject, seed);
    (0..STEPS).for_each(|_| program.step());
    let changed = program.end();
    let Program { lost, rungs, .. } = program;
    Found { lost, changed, rungs }
}

#[test]
fn no_pool_loses_an_order() {
    let mut reached = [0; 6];
    // The same seed for all pools first: each pool is tested within the first second or two.
    for seed in 0..SEEDS {
        for subject in SUBJECTS {
            let found = run(subject, seed);
            assert_eq!((found.lost.first(), found.changed), (None, 0), "{}, seed {seed}", subject.name);
            for rungs in found.rungs {
                let RungStats { shared, done, grown, stolen, released, waited, .. } = rungs;
                let these = [shared, done, grown, stolen, released, waited];
                reached.iter_mut().zip(these).for_each(|(all, one)| *all += one);
            }
        }
    }
    assert!(reached.iter().all(|times| *times > 20), "the ladder's rungs: {reached:?}");
}

/// Both checks find what an allocator without order loses.
#[test]
fn a_careless_allocator_is_found() {
    let subjects: [(Loss, Make); 2] = [
        (Loss::Order, |device, _| Ok(Arc::new(Careless::new(device, Loss::Order)?))),
        (Loss::Stream, |device, _| Ok(Arc::new(Careless::new(device, Loss::Stream)?))),
    ];
    for (loss, make) in subjects {
        let subject = Subject { name: "careless", memory: None, make, sizes: &[512], blocks: 8 };
        let all: Vec<Found> = (0..SEEDS).map(|seed| run(&subject, seed)).collect();
        let lost = all.iter().filter(|of| !of.lost.is_empty()).count() as u64;
        let changed = all.iter().filter(|of| of.changed > 0).count() as u64;
        assert_eq!(lost, SEEDS, "{loss:?}");
        assert!(changed > SEEDS / 2, "{loss:?}: {changed}");
    }
}
