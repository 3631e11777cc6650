//! Faulty stream-ordered pools, and the checks that detect the fault.

use super::super::planted::{Fault, Make, Planted, Wrong, find_made, pool, stage};
use super::super::stage::Plant;
use super::*;

impl Ordered for Wrong<dyn Ordered> {
    fn used_bytes(&self) -> Result<u64> {
        self.pool.used_bytes().map(|bytes| if self.is(Fault::Miscounts) { bytes / 2 } else { bytes })
    }

    fn reserved_bytes(&self) -> Result<u64> {
        self.pool.reserved_bytes().map(|bytes| if self.is(Fault::Miscounts) { bytes + 1 } else { bytes })
    }

    fn release_threshold(&self) -> Result<u64> {
        if self.is(Fault::OtherSettings) { Ok(0) } else { self.pool.release_threshold() }
    }

    fn trim_to(&self, bytes: u64) -> Result<()> {
        if self.is(Fault::NeverTrims) { Ok(()) } else { self.pool.trim_to(bytes) }
    }
}

/// Asserts that the step detects each fault, and that each of its checks detects at least one of
/// them.
fn finds(step: Step, faults: &[(Planted, &[&str])]) {
    find_made(
        DEMO.launched,
        step,
        &Make { plain: |pool| pool, wrong: |fault, pool| Box::new(Wrong::new(fault, pool)) },
        faults,
        &[],
    );
}

#[test]
fn results_that_are_wrong_are_found_while_times_are_taken() {
    let both = ["wrong words of the synchronous ones", "wrong words of the stream-ordered ones"];
    finds(speed, &[(stage(Plant::ForgottenWord), &both)]);
}

#[test]
fn figures_that_are_wrong_and_memory_that_does_not_come_back_are_found() {
    let faults: [(_, &[&str]); 4] = [
        (pool(Fault::OtherSettings), &["the threshold, in bytes"]),
        (pool(Fault::Miscounts), &["at first", "with 100 MB", "after the trim"]),
        (pool(Fault::Leaks), &["after the free", "after the trim"]),
        (pool(Fault::NeverTrims), &["after the trim"]),
    ];
    finds(threshold, &faults);
    finds(no_threshold, &[(pool(Fault::Leaks), &["with threshold 0"])]);
    let faults: [(_, &[&str]); 3] = [
        (pool(Fault::NeverTrims), &["trimmed with 100 MB"]),
        (pool(Fault::Leaks), &["trimmed with 100 MB"]),
        (stage(Plant::ForgottenWord), &["wrong words of what is live"]),
    ];
    finds(trim, &faults);
}

/// If all streams are the same, no dependency is missing, and the check must report that it found
/// none.
#[test]
fn a_missing_dependency_that_is_not_reported_is_found() {
    finds(missing, &[(stage(Plant::OneStream), &["a missing dependency of stream 2"])]);
}

#[test]
fn waits_that_are_left_out_are_found() {
    let late = ["values of 1,048,576 that are not 1.0", "that are not 2.0 before the free"];
    let reuse = ["reuse on stream 1 waits", "stream 1 comes to that memory after"];
    let crosses = |stage: &mut Stage<'_>, wrap: Wrap<'_>| {
        let Crossed { pool, second, block, .. } = cross(stage, wrap)?;
        give(&*pool, &second, block, layout(BYTES))
    };
    finds(crosses, &[(stage(Plant::NoWaits), &late[..1])]);
    let faults: [(_, &[&str]); 4] = [
        (stage(Plant::ForgottenWord), &[late[0], late[1], reuse[0]]),
        (pool(Fault::Keeps), &["a launch with its address"]),
        (pool(Fault::Elsewhere), &reuse[..1]),
        ((Some(Fault::Unordered), Some(Plant::NoWaits)), &[late[0], reuse[0], reuse[1]]),
    ];
    finds(streams, &faults);
}

#[test]
fn reuse_that_is_not_allowed_is_found() {
    let other = ["with no reuse between streams"];
    finds(alone, &[(pool(Fault::Unordered), &other), (stage(Plant::OneStream), &other)]);
}
