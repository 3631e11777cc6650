//! The behaviour that each adaptor adds.

use crate::prelude::*;
use std::io::{self, Write};

#[test]
fn statistics_count_live_blocks_and_failures() {
    let (device, stream) = cpu();
    let counted = Statistics::new(Limit::new(driver(&device), 1000));
    let alloc = |size| alloc(&counted, layout(size, 8), &stream);
    let (first, second) = (alloc(600), alloc(300));
    assert!(counted.allocate(layout(101, 8), &stream).is_err());
    free(&counted, first, &stream).unwrap();
    assert!(free(&counted, first, &stream).is_err());
    let third = alloc(100);
    let stats = counted.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes, stats.peak_blocks, stats.peak_bytes), (2, 400, 2, 900));
    assert_eq!((stats.allocs, stats.frees, stats.failed_allocs, stats.failed_frees), (3, 1, 1, 1));
    free(&counted, second, &stream).unwrap();
    free(&counted, third, &stream).unwrap();
    let stats = counted.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes, stats.peak_bytes, stats.frees), (0, 0, 900, 3));
    let json = serde_json::to_value(stats).unwrap();
    assert_eq!(json["peak_bytes"], 900);
}

#[test]
fn an_invalid_free_leaves_the_counts_unchanged() {
    let (device, stream) = cpu();
    let counted = Statistics::new(driver(&device));
    assert!(free(&counted, (DevicePtr::null(), layout(1 << 40, 8)), &stream).is_err());
    let stats = counted.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes, stats.peak_bytes, stats.failed_frees), (0, 0, 0, 1));
}

#[test]
fn blocks_are_counted_by_tag() {
    let (device, stream) = cpu();
    let tagged = Tagged::new(Limit::new(driver(&device), 1000));
    let scope = tag("first");
    let (one, two) = (alloc(&tagged, layout(600, 8), &stream), alloc(&tagged, layout(100, 8), &stream));
    assert!(tagged.allocate(layout(301, 8), &stream).is_err());
    drop(scope);
    let three = alloc(&tagged, layout(200, 8), &stream);
    free(&tagged, one, &stream).unwrap();
    assert!(free(&tagged, one, &stream).is_err() && free(&tagged, (two.0, layout(1, 1)), &stream).is_err());
    let tags = tagged.tags();
    let counts = |at: usize| {
        let of: &TagStats = &tags[at];
        [of.live_blocks, of.live_bytes, of.peak_bytes, of.allocs, of.frees, of.failed_allocs]
    };
    assert_eq!((tags[0].name.as_deref(), tags[1].name.as_deref()), (Some("first"), None));
    assert_eq!((counts(0), counts(1)), ([1, 100, 700, 2, 1, 1], [1, 200, 200, 1, 0, 0]));
    let report = tagged.report();
    let held: Vec<_> = report.holders.iter().map(|of| (of.name.as_str(), of.bytes, of.freed)).collect();
    assert_eq!(held, [("(untagged)", 200, Some(0)), ("first", 100, Some(1))]);
    assert_eq!(serde_json::to_value(&tags[0]).unwrap()["peak_bytes"], 700);
    [two, three].into_iter().for_each(|block| free(&tagged, block, &stream).unwrap());
    assert!(tagged.report().holders.is_empty());
}

#[test]
fn a_limit_is_exact_and_reports_the_rest() {
    let (device, stream) = cpu();
    let limited = Limit::new(driver(&device), 1 << 20);
    let max = alloc(&limited, layout(1 << 20, 1), &stream);
    let error = limited.allocate(layout(1, 1), &stream).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a limit cannot allocate 1 B: 1048576 B (1.0 MiB) of 1048576 B (1.0 MiB) are in use, 0 B are cached, and the \
         largest free block has 0 B; free blocks, or raise the limit (Limit::new) (WARPHEAP_OOM_REPORT=1 adds a report)"
    );
    free(&limited, max, &stream).unwrap();
    assert!(limited.allocate(layout((1 << 20) + 1, 1), &stream).is_err());
    // An allocation that fails upstream does not count.
    let pool = block_pool(&device, layout(64, 64), 2);
    let limited = Limit::new(pool, 100);
    assert!(limited.allocate(layout(65, 1), &stream).is_err());
    let error = limited.allocate(layout(101, 1), &stream).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a limit cannot allocate 101 B: 0 B of 100 B are in use, 128 B are cached, and the largest free block has 64 B; \
         free blocks, or raise the limit (Limit::new) (WARPHEAP_OOM_REPORT=1 adds a report)"
    );
    let block = alloc(&limited, layout(64, 1), &stream);
    assert_eq!(limited.usage().largest_free_bytes, Some(36));
    free(&limited, block, &stream).unwrap();
    assert_eq!((limited.limit(), limited.usage().largest_free_bytes), (100, Some(64)));
}

/// The address behind a block belongs to no block.
#[test]
fn the_end_of_a_block_is_not_inside_of_it() {
    let (device, stream) = cpu();
    let bump = BumpPool::builder(layout(256, 256)).build(&device).unwrap();
    for (allocator, why) in [
        (&driver(&device) as &dyn DeviceAllocator, "no live block is there"),
        (&bump, "no block was allocated there"),
    ] {
        let block = alloc(allocator, layout(64, 64), &stream);
        let at = |offset: usize| (DevicePtr(block.0.0.wrapping_byte_add(offset)), block.1);
        let error = |offset| free(allocator, at(offset), &stream).unwrap_err().to_string();
        assert!(error(64).contains(why), "{}", error(64));
        assert!(!error(63).contains(why), "{}", error(63));
        free(allocator, block, &stream).unwrap();
    }
}

#[test]
fn exactly_the_selected_call_fails() {
    let (device, stream) = cpu();
    let failing = FailureInjected::new(driver(&device), Failures::Nth(2));
    let block = alloc(&failing, layout(64, 64), &stream);
    let error = free(&failing, block, &stream).unwrap_err();
    assert!(matches!(error, Error::FailureInjected { call: 2 }), "{error}");
    assert_eq!(failing.usage().used_bytes, 64, "it was not passed on");
    free(&failing, block, &stream).unwrap();
    assert_eq!((failing.calls(), failing.failed()), (3, 1));
    let counted = FailureInjected::new(driver(&device), Failures::Never);
    free(&counted, alloc(&counted, layout(64, 64), &stream), &stream).unwrap();
    assert_eq!((counted.calls(), counted.failed()), (2, 0));
}

#[test]
fn calls_fail_with_the_configured_probability() {
    let (device, stream) = cpu();
    let failed = |one_in, seed| {
        let which = Failures::OneIn(NonZeroU64::new(one_in).unwrap(), seed);
        let failing = FailureInjected::new(driver(&device), which);
        let fails = |_| free(&failing, (DevicePtr::null(), layout(1, 1)), &stream).unwrap_err();
        let calls = (0..4000).map(fails).map(|error| matches!(error, Error::FailureInjected { .. }));
        calls.collect::<Vec<_>>()
    };
    assert!(failed(1, 7).iter().all(|failed| *failed));
    assert_eq!(failed(10, 7), failed(10, 7));
    assert_ne!(failed(10, 7), failed(10, 8));
    let count = failed(10, 7).iter().filter(|failed| **failed).count();
    assert!((300..500).contains(&count), "{count} of 4000");
}

/// Events that a subscriber received.
#[derive(Clone, Default)]
struct Events(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Events {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The events during `run`, one line each.
pub fn events_of(run: impl FnOnce()) -> String {
    // With a single dispatcher, `tracing` caches the interest of the first thread that reaches an
    // event, which may be the thread of another test.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let events = Events::default();
    let writer = events.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    String::from_utf8(events.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn every_call_emits_an_event() {
    let (device, stream) = cpu();
    let text = events_of(|| {
        let traced = Traced::new(Limit::new(driver(&device), 100));
        let block = alloc(&traced, layout(64, 8), &stream);
        assert!(traced.allocate(layout(64, 8), &stream).is_err());
        free(&traced, block, &stream).unwrap();
        assert!(free(&traced, block, &stream).is_err());
    });
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let wanted =
        [("DEBUG", "allocated"), ("WARN", "allocation failed"), ("DEBUG", "freed"), ("WARN", "free failed")];
    for (line, (level, words)) in lines.iter().zip(wanted) {
        let all = [level, words, "warpheap::host_pools", "bytes=64", &format!("stream={}", stream.id())];
        assert!(all.iter().all(|part| line.contains(part)), "{line}");
    }
}
