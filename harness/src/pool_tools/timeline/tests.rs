//! The order of rows, the events of a log, and filters.

use super::rows::LATE_WINDOWS;
use super::*;
use proptest::prelude::*;
use std::io::Cursor;
use warpheap::host_pools::read_rows;

const NAMES: &str = "thread,time,action,pointer,size,stream,align,tag\n";

fn log(rows: &str) -> Log<Cursor<String>> {
    Log::scan(Cursor::new(format!("{NAMES}{rows}"))).unwrap()
}

/// The events of a log as text: time, kind, address, bytes, tag.
fn events(rows: &str, filter: Filter) -> Vec<String> {
    let text = |event: Event| {
        let Block { address, bytes, tag, .. } = event.block;
        let tag = tag.as_deref().unwrap_or("-").to_owned();
        format!("{} {:?} {address:#x} {bytes} {tag}", event.time, event.kind)
    };
    log(rows).events(filter).unwrap().map(|event| text(event.unwrap())).collect()
}

const LOG: &str = "\
    7,10,allocate,0x100,100,3,8,\"layer 1, weights\"\n\
    8,20,allocate,0x200,200,4,64,\n\
    7,30,allocate failure,0x0,300,3,8,layer 2\n\
    9,40,free,0x200,200,3,64,\n\
    8,50,allocate,0x200,50,4,8,layer 2\n\
    7,60,free,0x100,100,4,8,\n";

#[test]
fn each_row_is_an_event() {
    let expected = [
        "10 Alloc 0x100 100 layer 1, weights",
        "20 Alloc 0x200 200 -",
        "30 AllocFailure 0x0 300 layer 2",
        "40 Free 0x200 200 -",
        "50 Alloc 0x200 50 layer 2",
        "60 Free 0x100 100 layer 1, weights",
    ];
    assert_eq!(events(LOG, Filter::default()), expected);
    let mut log = log(LOG);
    assert!(log.has_tags() && log.rows() == 6);
    let mut events = log.events(Filter::default()).unwrap();
    let ids: Vec<_> = events.by_ref().map(|event| event.unwrap().block.id).collect();
    assert_eq!(ids, [1, 2, 3, 2, 4, 1]);
    let EventsSummary { rows, allocations, frees, failures, events: exported, .. } = events.summary();
    assert_eq!((rows, allocations, frees, failures, exported), (6, 3, 2, 1, 6));
    assert_eq!((events.summary().peak_live_blocks, events.live()[0].address), (2, 0x200));
}

#[test]
fn blocks_are_selected_by_size_stream_and_tag() {
    let filter = Filter { min_size: Some(100), max_size: Some(199), ..Filter::default() };
    assert_eq!(events(LOG, filter).len(), 2);
    // The stream is that of the allocation: 0x200 is freed on stream 3.
    let filter = Filter { streams: vec![3], ..Filter::default() };
    let expected = ["10 Alloc 0x100 100 layer 1, weights", "30 AllocFailure 0x0 300 layer 2"];
    assert_eq!(events(LOG, filter)[..2], expected);
    let filter = Filter { streams: vec![3, 4], ..Filter::default() };
    assert_eq!(events(LOG, filter).len(), 6);
    let filter = Filter { tags: vec!["layer 2".into(), "layer 1, weights".into()], ..Filter::default() };
    assert_eq!(events(LOG, filter).len(), 4);
}

/// Times are relative to the first row, at 10 ns.
#[test]
fn blocks_that_are_live_at_the_start_are_allocated_then() {
    let filter = Filter { from: Some(15), to: Some(35), ..Filter::default() };
    let expected = [
        "25 Alloc 0x100 100 layer 1, weights",
        "25 Alloc 0x200 200 -",
        "30 AllocFailure 0x0 300 layer 2",
        "40 Free 0x200 200 -",
    ];
    assert_eq!(events(LOG, filter), expected);
    let filter = Filter { from: Some(12), to: Some(13), ..Filter::default() };
    assert_eq!(events(LOG, filter).len(), 2, "live, although no row is inside");
    assert_eq!(events(LOG, Filter { from: Some(60), ..Filter::default() }).len(), 0, "after the log");
}

#[test]
fn inconsistent_rows_are_counted() {
    let rows = "\
        1,1,free,0x900,64,1,8,\n\
        1,2,allocate,0x100,100,1,8,\n\
        1,3,allocate,0x100,40,1,8,\n\
        1,4,free failure,0x100,40,1,8,\n\
        1,5,free failure,0x500,1,1,8,\n\
        1,6,allocate,0x0,0,1,8,\n";
    let expected = [
        "2 Alloc 0x100 100 -",
        "3 Lost 0x100 100 -",
        "3 Alloc 0x100 40 -",
        "4 FreeFailure 0x100 40 -",
        "5 FreeFailure 0x500 1 -",
    ];
    assert_eq!(events(rows, Filter::default()), expected);
    let mut log = log(rows);
    let mut events = log.events(Filter::default()).unwrap();
    assert_eq!(events.by_ref().count(), 5);
    let EventsSummary { unmatched_frees, allocated_twice, failures, empty, .. } = events.summary();
    assert_eq!((unmatched_frees, allocated_twice, failures, empty), (1, 1, 2, 1));
}

#[test]
fn a_free_of_zero_bytes_ends_the_live_block() {
    let rows = "\
        1,1,allocate,0x100,100,1,8,\n\
        1,2,free,0x100,0,1,8,\n\
        1,3,free,0x100,0,1,8,\n\
        1,4,free failure,0x100,0,1,8,\n\
        1,5,allocate failure,0x0,0,1,8,\n";
    assert_eq!(events(rows, Filter::default()), ["1 Alloc 0x100 100 -", "2 Free 0x100 100 -"]);
    let mut log = log(rows);
    let mut events = log.events(Filter::default()).unwrap();
    assert_eq!(events.by_ref().count(), 2);
    let EventsSummary { frees, unmatched_frees, allocated_twice, empty, .. } = events.summary();
    assert_eq!((frees, unmatched_frees, allocated_twice, empty), (1, 0, 0, 3));
}

#[test]
fn invalid_logs_are_rejected_before_the_first_event() {
    for (text, words) in [
        (format!("{NAMES}{LOG}1,2,lend,0x1,1,1,8,\n"), "line 8, column 3"),
        (String::new(), "cannot be exported: it has no rows"),
        (NAMES.into(), "it has no rows"),
        ("a,b\n".into(), "none of the column names"),
    ] {
        let error = Log::scan(Cursor::new(text)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// A log of `threads` that take turns, with random delays between a call and its row.
fn shuffled(delays: &[u64]) -> String {
    let mut rows: Vec<(u64, String)> = Vec::new();
    for (i, delay) in delays.iter().enumerate() {
        let (time, address) = (i as u64, 0x100 * (1 + i / 2));
        let action = if i.is_multiple_of(2) { "allocate" } else { "free" };
        rows.push((time + delay, format!("1,{},{action},{address:#x},8,1,8,\n", time / 3)));
    }
    rows.sort_by_key(|(written, _)| *written);
    rows.into_iter().map(|(_, row)| row).collect()
}

proptest! {
    /// Whatever the window and the delays are, the order is that of a log that is sorted in memory.
    #[test]
    fn rows_are_sorted_as_in_memory(
        delays in proptest::collection::vec(prop_oneof![3 => 0_u64..4, 1 => 0_u64..80], 1..120),
        window in 2_usize..30,
    ) {
        let text = format!("{NAMES}{}", shuffled(&delays));
        let sorted = read_rows(text.as_bytes()).unwrap();
        let log = Log::scan_with(Cursor::new(text.clone()), window).unwrap();
        prop_assert_eq!(log.rows(), sorted.len() as u64);
        let mut rows = Ordered::new(Window::new(text.as_bytes(), window).unwrap(), log.late);
        let mut streamed = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            streamed.push(row.record().clone());
        }
        prop_assert_eq!(streamed, sorted.into_iter().map(|row| row.record).collect::<Vec<_>>());
    }
}

/// Memory is bounded by the window and the live blocks, not by the rows.
#[test]
fn many_rows_are_read_in_bounded_memory() {
    let (rows, window) = (60_000, 64);
    let row = |i: usize| {
        let (action, address) =
            (if i.is_multiple_of(2) { "allocate" } else { "free" }, 0x100 * (1 + i / 2 % 7));
        // Each hundredth row is written 100 rows too late.
        let time = if i % 100 == 99 { i.saturating_sub(100) } else { i };
        format!("{},{time},{action},{address:#x},8,1,8,\n", i % 16)
    };
    let text: String = std::iter::once(NAMES.to_owned()).chain((0..rows).map(row)).collect();
    let mut log = Log::scan_with(Cursor::new(text), window).unwrap();
    let late = log.late.len();
    assert!(late >= rows / 100 - 1 && late <= rows / 50, "{late}");
    let mut events = log.events(Filter::default()).unwrap();
    assert!(events.by_ref().all(|event| event.is_ok()));
    let summary = events.summary();
    assert_eq!(summary.rows, rows as u64);
    assert!(summary.most_held_rows <= window + late + 16, "{summary:?}");
    assert!(summary.peak_live_blocks <= 7, "{summary:?}");
}

#[test]
fn a_log_that_is_not_in_order_is_rejected() {
    let row = |i: usize| format!("1,{i},allocate,{i:#x},8,1,8,\n");
    let reversed = |rows: usize| {
        let rows: String = (1..=rows).rev().map(row).collect();
        Log::scan_with(Cursor::new(format!("{NAMES}{rows}")), 2)
    };
    let most = 2 * LATE_WINDOWS;
    assert_eq!(reversed(most + 2).unwrap().rows(), most as u64 + 2);
    let error = reversed(most + 3).unwrap_err().to_string();
    let words =
        "more than 128 of its rows are out of place by more than 2 rows, the last of them in line 132";
    assert!(error.contains(words) && error.contains("sort its rows by time"), "{error}");
}

/// RMM's logs have the time of day.
#[test]
fn rows_after_midnight_are_in_order() {
    let names = "Thread,Time,Action,Pointer,Size,Stream\n";
    let rows = "1,23:59:59.000000,allocate,0x100,64,0x0\n1,00:00:01.000000,free,0x100,64,0x0\n";
    let mut log = Log::scan_with(Cursor::new(format!("{names}{rows}")), 1).unwrap();
    assert_eq!(log.late.len(), 0);
    let events: Vec<_> = log.events(Filter::default()).unwrap().map(Result::unwrap).collect();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Alloc, EventKind::Free]);
    assert_eq!(events[1].time - events[0].time, 2_000_000_000);
}
