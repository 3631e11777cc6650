//! The record of panics under loom: threads that panic, and a host that takes their descriptions.
#![cfg(loom)]

#[macro_use]
mod loom_support;

use loom_support::{Model, Values, every_site_is_needed, model, with};
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use warpheap_device::panic::{PanicRecord, PanicSettings, RecordedPanic, SITES};

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
    let threads = [1, 2].map(|module| with(&record, module as u32, move |record| record.panics(module)));
    let host = with(&record, 0, |record| record.taken());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let first = host.join().unwrap();
    let all = first + record.taken() + record.taken();
    assert!((2..=3).contains(&all), "{all} of 2 panics were reported");
    assert_eq!(record.take(), None);
});

holds! {
    no_panic_is_lost: NO_PANIC_IS_LOST;
}

#[test]
fn every_ordering_is_needed() {
    every_site_is_needed(
        &SITES,
        &[],
        &[
            ("panic/counted", NO_PANIC_IS_LOST, "of 2 panics were reported"),
            ("panic/epoch", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/publish", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/published", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/take", NO_PANIC_IS_LOST, "Causality violation"),
            ("panic/taken", NO_PANIC_IS_LOST, "of 2 panics were reported"),
        ],
    );
}
