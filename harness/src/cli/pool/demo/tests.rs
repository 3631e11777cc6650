//! Each check of a demonstration can fail: a table of injected faults, and the checks that detect
//! them.

use super::fault::Fault::{self, *};
use super::stage::{Check, Step};
use super::*;
use std::collections::BTreeSet;
use warpheap::Error;
use warpheap::error::InvalidConfig;

/// For each step of a demonstration: faults, and starts of the names of checks that detect them.
type Faults = &'static [&'static [(Fault, &'static [&'static str])]];

/// The checks of a step, and the names of those that failed.
fn play(step: Step, fault: Option<Fault>) -> (Vec<Check>, BTreeSet<String>) {
    let chosen = Chosen::cpu(None, &KERNELS).unwrap_or_else(|error| panic!("{}", error.message));
    let mut stage = Stage::new(&chosen.device, chosen.module(), &Console::new(None)).unwrap();
    stage.fault = fault;
    println!("injected: {fault:?}");
    // A fault may end the step before its last check. Without a fault nothing does.
    let outcome = step(&mut stage);
    assert!(fault.is_some() || outcome.is_ok(), "{outcome:?}");
    let checks = stage.finish().unwrap();
    let failed = checks.iter().filter(|check| !check.holds).map(|check| check.what.clone()).collect();
    (checks, failed)
}

/// Asserts that all checks pass without a fault, that each fault fails the checks listed with it,
/// and that every check is failed by at least one fault, except for the `others`.
fn detects(demo: &Demo, faults: Faults, others: &[&str]) {
    assert_eq!(demo.steps.len(), faults.len());
    for (step, faults) in demo.steps.iter().zip(faults) {
        let (checks, failed) = play(*step, None);
        assert!(failed.is_empty(), "without a fault: {failed:?}");
        let mut left: BTreeSet<_> = checks.into_iter().map(|check| check.what).collect();
        for (fault, names) in *faults {
            let (_, failed) = play(*step, Some(*fault));
            for name in *names {
                let is_found = failed.iter().any(|what| what.starts_with(name));
                assert!(is_found, "{fault:?} is not found by `{name}`, but by {failed:?}");
            }
            left.retain(|what| !failed.contains(what));
        }
        left.retain(|what| !others.iter().any(|name| what.starts_with(name)));
        assert!(left.is_empty(), "no fault fails these: {left:?}");
    }
}

#[test]
fn blocks() {
    let faults: Faults = &[
        &[(Misreports, &["free blocks at first", "with 10", "after their"]), (Keeps, &["after their"])],
        &[
            (Overlapping, &["distinct addresses", "they are 4096 B apart"]),
            (Elsewhere, &["they are 4096 B apart", "free blocks then"]),
            (Generous, &["the 101st"]),
            (Misreports, &["free blocks then"]),
        ],
        &[
            (AcceptsAnyFree, &["a free inside", "a free of a foreign", "a double free"]),
            (Keeps, &["free blocks after those"]),
            (Misreports, &["free blocks after those"]),
            (Elsewhere, &["the only free block"]),
        ],
        &[
            (Overlapping, &["wrong words"]),
            (ForgottenWord, &["wrong words"]),
            (Keeps, &["free blocks after all frees"]),
        ],
        &[
            (Elsewhere, &["it has the block"]),
            (Unordered, &["the next owner"]),
            (ForgottenWord, &["the next owner"]),
        ],
        &[(Overlapping, &["overlaps"]), (Misreports, &["free blocks at the end"])],
    ];
    detects(&blocks::DEMO, faults, &[]);
}

#[test]
fn growable() {
    let faults: Faults = &[
        &[
            (Misreports, &["bytes of reserved", "bytes of memory at first", "bytes after growth"]),
            (Misreports, &["bytes after growth to 100 MiB"]),
            (Elsewhere, &["the address is the same", "the old values", "the values that stayed"]),
            (ForgottenWord, &["the old values", "the new values", "the values that stayed"]),
            (Short, &["values that were checked"]),
            (Generous, &["growth past the reservation"]),
            (FailureConsumes, &["address and bytes", "and so are the values"]),
            (NeverTrims, &["bytes after shrinking to the first", "bytes after shrinking to nothing"]),
            (Unordered, &["a drop waits", "a launch with its address"]),
        ],
        &[
            (Generous, &["growth beyond"]),
            (FailureConsumes, &["bytes of memory then"]),
            (ForgottenWord, &["it can still grow"]),
        ],
        &[(Misreports, &["bytes of one that never grew"])],
    ];
    detects(&growable::DEMO, faults, &[]);
}

#[test]
fn region() {
    let faults: Faults = &[
        &[(Misaligned, &["misaligned blocks"]), (Overlapping, &["blocks that overlap"])],
        &[
            (Generous, &["the largest size", "8 B aligned to 2^62", "1 MiB when 100 B"]),
            (FailureConsumes, &["the cursor after those", "all statistics"]),
        ],
        &[
            (ResetsEarly, &["a reset with live blocks", "the cursor is as before"]),
            (NeverResets, &["the cursor after the reset", "the same 4 addresses"]),
            (Overlapping, &["distinct ones"]),
            (Misreports, &["the cursor after the reset"]),
        ],
        &[(AcceptsAnyFree, &["a free of a block from before"])],
        &[
            (Elsewhere, &["it has the same address"]),
            (Unordered, &["the next owner"]),
            (ForgottenWord, &["the next owner"]),
        ],
        &[
            (Generous, &["10,000,000 floats in 32 MiB"]),
            (FailureConsumes, &["the cursor then"]),
            (ForgottenWord, &["10,000,000 floats in 40 MB"]),
        ],
        &[
            (Generous, &["2 MiB in 1 MiB, by default"]),
            (Misreports, &["with Overflow::Upstream", "the cursor", "blocks of the upstream after"]),
        ],
    ];
    // The handles reject these requests, which has separate tests.
    detects(&region::DEMO, faults, &["usize::MAX bytes", "words whose size wraps"]);
}

#[test]
fn arena() {
    let faults: Faults = &[
        &[(Overlapping, &["distinct offsets", "wrong values"]), (Small, &["distinct offsets", "the cursor"])],
        &[
            (Generous, &["failed allocations", "distinct offsets", "the cursor"]),
            (Overlapping, &["failed allocations", "wrong values"]),
        ],
        &[
            (FailureConsumes, &["successful allocations of 96 B"]),
            (Generous, &["successful allocations of 200 B", "the cursor"]),
            (Small, &["successful allocations of 4000 B", "the cursor"]),
        ],
        &[(FullGrid, &["distinct offsets", "the cursor"]), (Overlapping, &["wrong values"])],
        &[(Overlapping, &["distinct offsets", "wrong values"]), (Misreports, &["the cursor"])],
        &[(Overlapping, &["distinct offsets", "wrong values"]), (Misreports, &["the cursors"])],
    ];
    detects(&arena::DEMO, faults, &[]);
}

#[test]
fn driver() {
    let faults: Faults = &[
        &[(ForgottenWord, &["wrong words in synchronous", "wrong words in stream-ordered"])],
        &[
            (Misreports, &["the release threshold", "at first", "with 100 MB", "after a trim"]),
            (Leaks, &["after the free", "after a trim"]),
            (NeverTrims, &["after a trim"]),
        ],
        &[(Leaks, &["with threshold 0"])],
        &[
            (NeverTrims, &["trimmed with 100 MB"]),
            (Leaks, &["trimmed with 100 MB"]),
            (ForgottenWord, &["the live values"]),
        ],
        // If all streams are the same, no dependency is missing, and the check finds none.
        &[(OneStream, &["a missing dependency"])],
        &[
            (ForgottenWord, &["on stream 2", "before the free", "reuse on stream 1"]),
            (Keeps, &["a launch with its address"]),
            (Elsewhere, &["reuse on stream 1"]),
            (Unordered, &["on stream 2", "reuse on stream 1", "stream 1 has the memory"]),
        ],
        &[(Unordered, &["without reuse"]), (OneStream, &["without reuse"])],
    ];
    detects(&driver::DEMO, faults, &[]);
}

#[test]
fn caching() {
    let faults: Faults = &[
        &[(Misreports, &["1 B rounded", "513 B rounded", "2147483649 B", "wasted bytes", "after the free"])],
        &[(Leaks, &["1 MiB, freed and allocated", "driver calls"])],
        &[
            (Leaks, &["a freed block serves", "then, with no call"]),
            (Unordered, &["it serves another stream only after"]),
        ],
        &[
            (Leaks, &["a dropped PoolBuffer", "after its drop"]),
            (Misreports, &["its blocks", "after its drop"]),
            (ForgottenWord, &["ordered after the kernel", "a kernel writes"]),
        ],
        &[(Unordered, &["a stream of another device", "without stream order"])],
        &[(Generous, &["the fifth"]), (Misreports, &["live blocks"])],
        &[(Overlapping, &["overlaps"]), (Misreports, &["blocks and bytes"])],
        &[
            (Unordered, &["a pending free"]),
            (ForgottenWord, &["a pending free"]),
            (Misreports, &["allocations served by that", "4 MiB after", "failed allocations"]),
            (Generous, &["the next allocation"]),
        ],
        &[
            (Elsewhere, &["a block that another stream frees last"]),
            (Unordered, &["after a wait on the host"]),
            (Misreports, &["allocations served by a wait"]),
            (ForgottenWord, &["that stream's writes"]),
        ],
        &[(Misreports, &["allocations after the hook"]), (Generous, &["when it has no more"])],
        &[(Misreports, &["cache misses"])],
    ];
    // The builder rejects these settings before a pool exists, which has separate tests.
    let settings = ["a minimum block of", "3 classes", "a maximum of", "segments of"];
    detects(&caching::DEMO, faults, &settings);
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
        show(&FAILING, &chosen, &Console::new(None)).unwrap_or_else(|error| panic!("{}", error.message));
    let holds: Vec<_> = report.checks.iter().map(|check| check.holds).collect();
    assert_eq!((holds, report.failed()), (vec![false, true, false, false], 3));
    assert!(report.error.as_ref().is_some_and(|error| error.contains("cannot allocate")));
    assert_eq!(conclude(&[report], &Console::new(None)), Status::Fault);
}
