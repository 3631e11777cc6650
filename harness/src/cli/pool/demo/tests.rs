//! Each computed check of a demonstration can fail: tables of injected faults.

use super::fault::Fault::{self, *};
use super::stage::{Check, Step};
use super::*;
use std::collections::BTreeSet;
use warpheap::Error;
use warpheap::error::InvalidConfig;

/// For each step of a demonstration: faults, and the start of the name of a check that each must
/// fail; empty if that may be any check.
type Faults = &'static [&'static [(Fault, &'static str)]];

/// The checks of a step, and the names of those that failed.
fn play(step: Step, fault: Option<Fault>) -> (Vec<Check>, BTreeSet<String>) {
    let chosen = Chosen::cpu(None, &KERNELS).unwrap_or_else(|error| panic!("{}", error.message));
    let mut stage = Stage::new(&chosen.device, chosen.module(), &Console::new([])).unwrap();
    stage.fault = fault;
    println!("injected: {fault:?}");
    // A fault may end the step before its last check. Without a fault nothing does.
    let outcome = step(&mut stage);
    assert!(fault.is_some() || outcome.is_ok(), "{outcome:?}");
    let checks = stage.finish().unwrap();
    let failed = checks.iter().filter(|check| !check.holds).map(|check| check.what.clone()).collect();
    (checks, failed)
}

/// Asserts that all checks pass without a fault, that each fault fails a check with the given name,
/// and that every check is failed by at least one fault, except for those of reported values.
fn detects(demo: &Demo, faults: Faults) {
    assert_eq!(demo.steps.len(), faults.len());
    for (step, faults) in demo.steps.iter().zip(faults) {
        let (checks, failed) = play(*step, None);
        assert!(failed.is_empty(), "without a fault: {failed:?}");
        let computed = checks.into_iter().filter(|check| !check.is_reported);
        let mut left: BTreeSet<_> = computed.map(|check| check.what).collect();
        for (fault, name) in *faults {
            let (_, failed) = play(*step, Some(*fault));
            let is_found = failed.iter().any(|what| what.starts_with(name));
            assert!(is_found, "{fault:?} is not found by `{name}`, but by {failed:?}");
            left.retain(|what| !failed.contains(what));
        }
        assert!(left.is_empty(), "no fault fails these: {left:?}");
    }
}

#[test]
fn blocks() {
    let faults: Faults = &[
        &[(Keeps, ""), (Elsewhere, "")],
        &[(Overlapping, ""), (Elsewhere, "")],
        &[(Keeps, ""), (Elsewhere, "the only free block")],
        &[(Overlapping, ""), (ForgottenWord, ""), (Keeps, "")],
        &[(Elsewhere, ""), (Unordered, "the next owner"), (ForgottenWord, "")],
        &[(Overlapping, "")],
    ];
    detects(&blocks::DEMO, faults);
}

#[test]
fn growable() {
    let faults: Faults = &[
        &[
            (Elsewhere, "the address is the same"),
            (ForgottenWord, ""),
            (Short, ""),
            (FailureConsumes, ""),
            (NeverTrims, ""),
            (Unordered, "a drop waits"),
        ],
        &[(FailureConsumes, ""), (ForgottenWord, "")],
        &[],
    ];
    detects(&growable::DEMO, faults);
}

#[test]
fn region() {
    let faults: Faults = &[
        &[(Misaligned, ""), (Overlapping, "")],
        &[(FailureConsumes, "")],
        &[(ResetsEarly, ""), (NeverResets, ""), (Overlapping, "")],
        &[],
        &[(Elsewhere, ""), (Unordered, "the next owner"), (ForgottenWord, "")],
        &[(FailureConsumes, ""), (ForgottenWord, "")],
        &[(Keeps, "")],
    ];
    detects(&region::DEMO, faults);
}

#[test]
fn arena() {
    let faults: Faults = &[
        &[(Overlapping, ""), (Small, "")],
        &[(Large, ""), (Overlapping, "")],
        &[(FailureConsumes, ""), (Large, ""), (Small, "")],
        &[(FullGrid, ""), (Overlapping, "")],
        &[(Overlapping, ""), (Small, "")],
        &[(Overlapping, ""), (Small, "")],
    ];
    detects(&arena::DEMO, faults);
}

#[test]
fn driver() {
    let faults: Faults = &[
        &[(ForgottenWord, "")],
        &[(Leaks, ""), (NeverTrims, "")],
        &[(Leaks, "")],
        &[(NeverTrims, ""), (Leaks, ""), (ForgottenWord, "")],
        // If all streams are the same, no dependency is missing, and the check finds none.
        &[(OneStream, "a missing dependency")],
        &[
            (ForgottenWord, ""),
            (Keeps, ""),
            (Elsewhere, ""),
            (Unordered, "on stream 2"),
            (Unordered, "reuse on stream 1"),
            (Unordered, "stream 1 has the memory"),
        ],
        &[(Unordered, "without reuse"), (OneStream, "without reuse")],
    ];
    detects(&driver::DEMO, faults);
}

#[test]
fn caching() {
    let faults: Faults = &[
        &[(Leaks, "")],
        &[(Leaks, "")],
        &[(Leaks, ""), (Unordered, "it serves another stream only after")],
        &[(Leaks, ""), (ForgottenWord, "")],
        &[(Unordered, "without stream order")],
        &[(Overlapping, "")],
        &[(Overlapping, "")],
        &[(Unordered, "a pending free"), (ForgottenWord, ""), (FailureConsumes, "")],
        &[(Elsewhere, ""), (Unordered, "after a wait on the host"), (ForgottenWord, "")],
        &[],
        &[],
    ];
    detects(&caching::DEMO, faults);
}

/// Its checks are of what the library reports.
#[test]
fn reports() {
    detects(&reports::DEMO, &[&[], &[]]);
}

#[test]
fn overrun() {
    detects(&overrun::DEMO, &[&[(Overlapping, "the other block"), (ForgottenWord, "")]]);
}

#[test]
fn every_demonstration_is_found_by_its_name() {
    for demo in DEMOS {
        let found = named(demo.name).unwrap_or_else(|error| panic!("{}", error.message));
        assert!(found.len() == 1 && std::ptr::eq(found[0], demo), "two are called {}", demo.name);
    }
    assert!(named("S1").is_err_and(|error| error.status == Status::Usage));
}

#[test]
fn a_failed_check_is_a_fault_and_the_other_steps_still_run() {
    const FAILING: Demo = Demo {
        name: "failing",
        shows: "checks that fail",
        steps: &[
            |stage| {
                stage.check_is("one and one", 3, 2);
                stage.check_is("two and two", 4, 4);
                stage.check_reported("three and three", 7, 6);
                let (given, why) = ("1".into(), "a test".into());
                let other = Error::InvalidConfig(InvalidConfig::Pool { setting: "x", given, why });
                stage.check_fails("a success", Ok(()), |_| true);
                stage.check_fails("another error", Err::<(), _>(other), |error| error.is_fatal());
                Ok(())
            },
            |stage| stage.device.alloc_memory(1 << 60, 1).map(drop),
        ],
    };
    let chosen = Chosen::cpu(None, &KERNELS).unwrap_or_else(|error| panic!("{}", error.message));
    let report =
        show(&FAILING, &chosen, &Console::new([])).unwrap_or_else(|error| panic!("{}", error.message));
    let holds: Vec<_> = report.checks.iter().map(|check| check.holds).collect();
    assert_eq!((holds, report.failed()), (vec![false, true, false, false, false], 4));
    assert!(report.error.as_ref().is_some_and(|error| error.contains("cannot allocate")));
    assert_eq!(conclude(&[report], &Console::new([])), Status::Fault);
}
