//! Faulty regions, and the checks that detect the fault.

use super::super::planted::{Fault, Make, Planted, Wrong, find_made, pool, stage};
use super::super::stage::Plant;
use super::*;

impl Region for Wrong<dyn Region> {
    fn stats(&self) -> BumpPoolStats {
        let mut stats = self.pool.stats();
        if self.is(Fault::Miscounts) {
            stats.granted += 1;
            stats.overflow_blocks = 7;
        }
        stats
    }

    fn overflow(&self) -> Overflow {
        if self.is(Fault::OtherSettings) { Overflow::Upstream } else { self.pool.overflow() }
    }

    fn reset(&self, stream: &Stream) -> Result<()> {
        match self.fault {
            Fault::NeverResets if self.pool.stats().live_blocks == 0 => Ok(()),
            // SAFETY: no work uses the blocks.
            Fault::ResetsEarly => unsafe { self.pool.reset_unchecked(stream) },
            _ => self.pool.reset(self.seen(stream)),
        }
    }

    unsafe fn reset_unchecked(&self, stream: &Stream) -> Result<()> {
        // SAFETY: `reset_unchecked` requires what the pool's `reset_unchecked` requires.
        unsafe { self.pool.reset_unchecked(stream) }
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
fn blocks_off_their_alignment_or_in_each_other_are_found() {
    let faults: [(_, &[&str]); 2] = [
        (pool(Fault::Misaligned), &["blocks of 3 B off"]),
        (pool(Fault::Overlapping), &["blocks that overlap"]),
    ];
    finds(alignments, &faults, &[]);
}

#[test]
fn what_is_granted_instead_of_refused_is_found() {
    let granted = ["the most that a layout", "8 B aligned to 2^62", "1 MiB of what is left"];
    let faults: [(_, &[&str]); 2] = [
        (pool(Fault::Generous), &granted),
        (pool(Fault::TakesOnRefusal), &["the cursor after", "and all else"]),
    ];
    // The handle rejects these requests, which has separate tests.
    finds(too_much, &faults, &["usize::MAX bytes", "as many words as wrap"]);
}

#[test]
fn resets_too_early_or_none_at_all_are_found() {
    let faults: [(_, &[&str]); 4] = [
        (pool(Fault::ResetsEarly), &["a reset with blocks live", "the cursor then"]),
        (pool(Fault::NeverResets), &["the cursor after the reset", "the same addresses again"]),
        (pool(Fault::Overlapping), &["distinct ones"]),
        (pool(Fault::Miscounts), &["the cursor after the reset"]),
    ];
    finds(reset, &faults, &[]);
}

#[test]
fn a_stale_free_that_is_taken_is_found() {
    finds(stale, &[(pool(Fault::TakesAnything), &["a free of a block that a reset"])], &[]);
}

#[test]
fn a_reset_that_waits_for_nothing_is_found() {
    let faults: [(_, &[&str]); 3] = [
        (pool(Fault::Elsewhere), &["a reset while a kernel writes"]),
        (pool(Fault::Unordered), &["what that kernel wrote comes first"]),
        (stage(Plant::ForgottenWord), &["what that kernel wrote comes first"]),
    ];
    finds(order, &faults, &[]);
}

#[test]
fn floats_that_have_no_room_or_are_not_written_are_found() {
    let faults: [(_, &[&str]); 3] = [
        (pool(Fault::Generous), &["10,000,000 floats in 32 MiB"]),
        (pool(Fault::TakesOnRefusal), &["the cursor then"]),
        (stage(Plant::ForgottenWord), &["floats of 10,000,000 in 40 MB"]),
    ];
    finds(floats, &faults, &[]);
}

#[test]
fn another_policy_is_found() {
    let faults: [(_, &[&str]); 2] = [
        (pool(Fault::OtherSettings), &["the policy unless another"]),
        (
            pool(Fault::Miscounts),
            &["with the upstream's as policy", "the cursor", "the upstream's blocks after"],
        ),
    ];
    finds(overflow, &faults, &[]);
}
