//! Faulty caching pools, and the checks that detect the fault.

use super::super::planted::{Fault, Make, Planted, Wrong, find_made, pool, stage};
use super::super::stage::Plant;
use super::*;

impl Caching for Wrong<dyn Caching> {
    fn rounded(&self, bytes: u64) -> u64 {
        self.pool.rounded(bytes) + u64::from(self.is(Fault::OtherSettings))
    }

    fn stats(&self) -> CachingPoolStats {
        let mut stats = self.pool.stats();
        if self.is(Fault::Miscounts) {
            let rungs = &mut stats.rungs;
            let counts = [
                &mut stats.live_blocks,
                &mut stats.usage.used_bytes,
                &mut stats.wasted_bytes,
                &mut stats.misses,
            ];
            let rungs = [
                &mut rungs.stolen,
                &mut rungs.released,
                &mut rungs.waited,
                &mut rungs.hooked,
                &mut rungs.failed,
            ];
            counts.into_iter().chain(rungs).for_each(|count| *count += 1);
        }
        stats
    }
}

/// Asserts that the step detects each fault, and that each of its checks detects at least one of
/// them, except for the checks in `elsewhere`, which do not depend on a pool.
fn finds(step: Step, faults: &[(Planted, &[&str])], elsewhere: &[&str]) {
    find_made(
        DEMO.launched,
        step,
        &Make { plain: |pool| pool, wrong: |fault, pool| Box::new(Wrong::new(fault, pool)) },
        faults,
        elsewhere,
    );
}

#[test]
fn other_classes_and_waste_are_found() {
    let classes = ["1 B are rounded to", "513 B are rounded to", "2147483649 B"];
    let faults: [(_, &[&str]); 2] = [
        (pool(Fault::OtherSettings), &classes),
        (pool(Fault::Miscounts), &["wasted bytes of 513 B", "after the free"]),
    ];
    finds(roundings, &faults, &[]);
}

#[test]
fn what_is_not_kept_is_found() {
    let named = ["1 MiB, freed and allocated again", "allocations of the driver's for both"];
    finds(again, &[(pool(Fault::Leaks), &named)], &[]);
    finds(pair, &[(pool(Fault::Miscounts), &["of 101,000 pairs"])], &[]);
}

#[test]
fn a_block_that_goes_to_another_stream_too_early_is_found() {
    let kept = ["its own stream has it at once", "and then, with no call to process"];
    let faults: [(_, &[&str]); 2] =
        [(pool(Fault::Leaks), &kept), (pool(Fault::Unordered), &["another stream has it only after"])];
    finds(pending, &faults, &[]);
}

#[test]
fn handles_that_lose_their_memory_are_found() {
    let faults: [(_, &[&str]); 3] = [
        (pool(Fault::Leaks), &["a PoolBuffer's memory is its own", "and after its end"]),
        (pool(Fault::Miscounts), &["blocks allocated for it", "and after its end"]),
        (stage(Plant::ForgottenWord), &["behind the kernel of a stream", "the value of a PoolBox"]),
    ];
    finds(handles, &faults, &[]);
}

#[test]
fn a_pool_that_looks_at_no_stream_is_found() {
    let named = ["a stream of another device", "without stream order, a free waits"];
    // The builder rejects these settings before a pool exists, which has separate tests.
    let wrong = ["a least block of", "3 classes", "a maximum of", "segments of"];
    finds(settings, &[(pool(Fault::Unordered), &named)], &wrong);
}

#[test]
fn a_fifth_block_that_is_granted_is_found() {
    let faults: [(_, &[&str]); 2] =
        [(pool(Fault::Generous), &["the fifth"]), (pool(Fault::Miscounts), &["blocks live"])];
    finds(fifth, &faults, &[]);
}

#[test]
fn blocks_with_two_owners_are_found() {
    let faults: [(_, &[&str]); 2] = [
        (pool(Fault::Overlapping), &["overlaps, 8 host threads"]),
        (pool(Fault::Miscounts), &["blocks and bytes in use"]),
    ];
    finds(threads::threads, &faults, &[]);
}

#[test]
fn rungs_that_serve_wrongly_or_not_are_found() {
    let counts = ["served by that rung", "4 MiB after cached segments", "refused"];
    let words = ["no memory upstream: a pending free serves"];
    let faults: [(_, &[&str]); 4] = [
        (pool(Fault::Unordered), &words),
        (stage(Plant::ForgottenWord), &words),
        (pool(Fault::Miscounts), &counts),
        (pool(Fault::Generous), &["and then"]),
    ];
    finds(ladder::ladder, &faults, &[]);
    let faults: [(_, &[&str]); 4] = [
        (pool(Fault::Elsewhere), &["a block that another stream gives back too late"]),
        (pool(Fault::Unordered), &["after the host waited"]),
        (pool(Fault::Miscounts), &["served by the rung that waits"]),
        (stage(Plant::ForgottenWord), &["words in it that are not"]),
    ];
    finds(ladder::waited, &faults, &[]);
    let faults: [(_, &[&str]); 2] = [
        (pool(Fault::Miscounts), &["allocations that the hook made room for"]),
        (pool(Fault::Generous), &["when it has no more"]),
    ];
    finds(ladder::hook, &faults, &[]);
}
