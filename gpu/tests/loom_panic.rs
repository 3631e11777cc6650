//! The record of panics under loom: threads that panic, and a host that takes their descriptions.
#![cfg(loom)]

#[macro_use]
mod loom_support;

use loom_support::{Model, Values, every_site_is_needed, model, with};
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use warpheap_device::panic::{ORDERINGS, PanicRecord, PanicSettings, RecordedPanic};

/// Preemptions of a run. With one more, a run takes minutes and finds no more.
const PREEMPTIONS: usize = 3;

/// A record, and a plain value that stands for the description: only the thread that describes its
/// panic and the host that reads the description may access it.
struct Record {
    record: PanicRecord,
    description: Values<u64>,
}

impl Deref for Record {
    type Target = PanicRecord;

    fn deref(&self) -> &PanicRecord {
        &self.record
    }
}

impl Record {
    fn new() -> Arc<Record> {
        Arc::new(Record { record: PanicRecord::empty(), description: Values::new(1) })
    }

    /// A panic of the calling thread, in the module with this number.
    fn panics(&self, module: u64) {
        let describe = |_: &mut dyn std::fmt::Write| self.description.access(0, |value| *value = module);
        let settings = PanicSettings { module, ..PanicSettings::default() };
        self.add(&settings, Location::caller(), describe);
    }

    /// Takes a description. Returns the number of panics that it stands for.
    fn taken(&self) -> u64 {
        let read = |panic: &RecordedPanic| {
            let described = self.description.access(0, |value| *value);
            assert_eq!(panic.module, described, "a mixture of descriptions");
        };
        self.take_after(read).map_or(0, |panic| 1 + panic.others)
    }
}

/// Two threads panic while the host takes a description. None of the panics is lost.
const NO_PANIC_IS_LOST: Model = model(PREEMPTIONS, || {
    let record = Record::new();
    let threads = [0, 1].map(|lane| with(&record, lane, move |record| record.panics(1 + u64::from(lane))));
    let host = with(&record, 2, |record| record.taken());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let first = host.join().unwrap();
    let all = first + record.taken() + record.taken();
    assert!((2..=3).contains(&all), "{all} of 2 panics were reported");
    assert_eq!(record.take(), None);
});

/// Two threads panic in the second epoch, one of which was described in the first. Its place is no
/// reason to publish the description of the other.
const NOTHING_IS_PUBLISHED_EARLY: Model = model(PREEMPTIONS, || {
    let record = Record::new();
    record.panics(1);
    assert_eq!(record.taken(), 1);
    let threads = [0, 1].map(|lane| with(&record, lane, move |record| record.panics(2 + u64::from(lane))));
    let host = with(&record, 2, |record| record.taken());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!((2..=3).contains(&(host.join().unwrap() + record.taken() + record.taken())));
});

/// The message of lane 0's panic panics itself, beside a panic of lane 1. The description is
/// published once, and the host can take it.
const A_PANIC_IN_A_MESSAGE_PUBLISHES: Model = model(PREEMPTIONS, || {
    let record = Record::new();
    let nested = with(&record, 0, |record| {
        let settings = PanicSettings { module: 1, ..PanicSettings::default() };
        record.add(&settings, Location::caller(), |_| {
            record.description.access(0, |value| *value = 1);
            record.panics(1);
        });
    });
    let other = with(&record, 1, |record| record.panics(2));
    nested.join().unwrap();
    other.join().unwrap();
    // The message is written only if lane 0 is first.
    assert!((2..=3).contains(&record.taken()));
});

holds! {
    no_panic_is_lost: NO_PANIC_IS_LOST;
    nothing_is_published_early: NOTHING_IS_PUBLISHED_EARLY;
    a_panic_in_a_message_publishes: A_PANIC_IN_A_MESSAGE_PUBLISHES;
}

#[test]
fn every_ordering_is_needed() {
    every_site_is_needed(
        &ORDERINGS,
        &[],
        &[
            ("panic/counted", NO_PANIC_IS_LOST, "of 2 panics were reported"),
            ("panic/epoch", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/describe", NOTHING_IS_PUBLISHED_EARLY, "Causality violation"),
            ("panic/described", NOTHING_IS_PUBLISHED_EARLY, "Causality violation"),
            ("panic/publish", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/published", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/take", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/taken", NO_PANIC_IS_LOST, "of 2 panics were reported"),
        ],
    );
}
