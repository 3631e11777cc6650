//! Faulty arenas, and the checks that detect the fault.

use super::super::planted::{Fault, Make, find_made, pool};
use super::*;
use std::cell::RefCell;

/// An arena with a fault.
struct Wrong {
    fault: Fault,
    arena: RefCell<Bump>,
}

impl Wrong {
    /// The arena itself, or one with twice the bytes or 64 bytes, depending on the fault.
    fn new(fault: Fault, arena: Bump) -> Result<Wrong> {
        let bytes = match fault {
            Fault::Generous => 2 * arena.memory().bytes(),
            Fault::OtherSettings => 64,
            _ => arena.memory().bytes(),
        };
        let other = Bump::builder(bytes).min_align(WORD).shards(0).build(arena.memory().device())?;
        Ok(Wrong { fault, arena: RefCell::new(other) })
    }

    /// Gives the second half of the threads the offsets of the first half.
    fn twice(
        &self,
        stage: &Stage<'_>,
        stream: &Stream,
        threads: u32,
        bytes: u32,
        first: u32,
    ) -> Result<DeviceBuffer<u64>> {
        let half = threads / 2;
        let take = |threads, first| self.arena.borrow().take(stage, stream, threads, bytes, first);
        let one = take(half, first)?.copy_to_vec()?;
        self.arena.borrow_mut().reset()?;
        let two = take(threads - half, first + half)?.copy_to_vec()?;
        stage.device().from_slice(&[one, two].concat())
    }
}

impl Arena for Wrong {
    fn take(
        &self,
        stage: &Stage<'_>,
        stream: &Stream,
        threads: u32,
        bytes: u32,
        first: u32,
    ) -> Result<DeviceBuffer<u64>> {
        let arena = self.arena.borrow();
        match self.fault {
            Fault::Overlapping => {
                drop(arena);
                self.twice(stage, stream, threads, bytes, first)
            }
            Fault::WholeGrid => arena.take(stage, stream, threads.next_multiple_of(1024), bytes, first),
            Fault::TakesOnRefusal => {
                let offsets = arena.take(stage, stream, threads, bytes, first)?;
                let left = arena.stats()?.remaining_bytes;
                if offsets.copy_to_vec()?.contains(&NONE) && left > 0 {
                    drop(arena.take(stage, stream, 1, left as u32, first)?);
                }
                Ok(offsets)
            }
            _ => arena.take(stage, stream, threads, bytes, first),
        }
    }

    fn words(&self) -> Result<Vec<u32>> {
        self.arena.borrow().words()
    }

    fn stats(&self) -> Result<BumpStats> {
        self.arena.borrow().stats()
    }
}

/// Asserts that the step detects each fault, and that each of its checks detects at least one of
/// them.
fn finds(step: Step, faults: &[(Fault, &[&str])]) {
    let faults: Vec<_> = faults.iter().map(|(fault, named)| (pool(*fault), *named)).collect();
    find_made(
        DEMO.launched,
        step,
        &Make {
            plain: |arena| Box::new(arena),
            wrong: |fault, arena| Box::new(Wrong::new(fault, arena).unwrap()),
        },
        &faults,
        &[],
    );
}

#[test]
fn blocks_that_are_handed_out_twice_or_not_at_all_are_found() {
    let faults: [(_, &[&str]); 2] = [
        (Fault::Overlapping, &["distinct offsets", "the cursor", "wrong values"]),
        (Fault::OtherSettings, &["distinct offsets", "the cursor"]),
    ];
    finds(all_of_it, &faults);
}

#[test]
fn more_than_it_has_is_found() {
    let faults: [(_, &[&str]); 2] = [
        (Fault::Generous, &["threads that got nothing", "distinct offsets", "the cursor"]),
        (Fault::Overlapping, &["threads that got nothing", "wrong values"]),
    ];
    finds(more_than_it, &faults);
}

#[test]
fn a_refusal_that_takes_something_is_found() {
    let faults: [(_, &[&str]); 3] = [
        (Fault::TakesOnRefusal, &["pieces of 96 B"]),
        (Fault::Generous, &["pieces of 200 B", "the cursor"]),
        (Fault::OtherSettings, &["pieces of 4000 B", "pieces of 96 B", "the cursor"]),
    ];
    finds(pieces, &faults);
}

#[test]
fn threads_that_only_fill_up_the_grid_and_allocate_are_found() {
    finds(fewer, &[(Fault::WholeGrid, &["distinct offsets", "the cursor"])]);
}

#[test]
fn streams_that_get_the_same_are_found() {
    let named = ["distinct offsets", "the cursor", "wrong values"];
    finds(|stage, wrap| streams_on_one(stage, wrap, 1), &[(Fault::Overlapping, &named)]);
    finds(|stage, wrap| streams_on_one(stage, wrap, 32), &[(Fault::Overlapping, &named)]);
    finds(
        an_arena_each,
        &[(Fault::Overlapping, &["distinct offsets of all", "the cursors", "wrong values"])],
    );
}
