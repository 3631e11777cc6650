//! The heap's figures on the CPU: each is measured and finds no fault. Their times mean nothing.

use super::*;
use crate::bench::BenchReport;
use crate::bench::tests::measured;

fn names(report: &BenchReport) -> Vec<&str> {
    report.figures.iter().map(|figure| figure.name.as_str()).collect()
}

#[test]
fn every_size_is_allocated_and_some_are_freed() {
    let report = measured("heap alloc, ");
    assert!(names(&report).contains(&"heap alloc, 8192 B") && report.figures.len() >= 20);
    assert_eq!(measured("heap free, ").figures.len(), 13);
}

#[test]
fn a_churn_stands_beside_two_floors() {
    assert_eq!(names(&measured("heap churn, 1")), ["heap churn, 16 B", "heap churn, 128 B"]);
    let report = measured("heap churn, mixed");
    assert_eq!(names(&report), ["heap churn, mixed 16-512 B, 2^17", "heap churn, mixed 16-512 B, 2^20"]);
    for figure in &report.figures {
        let (base, also) = (figure.base.unwrap(), figure.also.as_ref().unwrap());
        assert!(base.median_us <= also.base.median_us && figure.against != also.against, "{figure:?}");
    }
}

#[test]
fn what_was_freed_is_handed_out_again() {
    for figure in measured("heap reuse").figures {
        assert!(figure.value > 50.0 && figure.value < 120.0, "{figure:?}");
    }
    for figure in measured("heap whole").figures {
        assert_eq!((figure.value, figure.passed), (100.0, true), "{figure:?}");
    }
}

#[test]
fn a_heap_is_set_up_and_has_metadata() {
    let report = measured("heap init");
    assert_eq!(names(&report), ["heap init, 8 GiB", "heap init, 100 GiB"]);
    assert!(report.figures.iter().all(|figure| figure.time.is_some() && figure.base.is_none()));
    for figure in measured("heap metadata").figures {
        assert!(figure.value > 0.78 && figure.value < 5.0, "{figure:?}");
    }
}

#[test]
fn groups_allocate_and_free() {
    assert_eq!(measured("heap churn through").figures.len(), 2);
    assert_eq!(measured("heap alloc for whole blocks").figures.len(), 2);
}

#[test]
fn there_is_room_for_all() {
    assert_eq!(room_for(1 << 20, one_size(4096)), 8 * GIB);
    assert_eq!(room_for(1 << 20, one_size(8192)), 16 * GIB);
    assert_eq!(room_for(1 << 24, one_size(512)), 16 * GIB);
    assert_eq!(room_for(1 << 20, Sizes { min: 16, max: 8192 }), 8 * GIB);
}
