//! Free ranges, pictures, holders and advice.

use super::*;

const MIB: u64 = 1 << 20;

/// A pool of 64 MiB with blocks of these starts and sizes, in MiB.
fn pool(blocks: &[(u64, u64)]) -> MemoryReport {
    let blocks: Vec<_> = blocks.iter().map(|(start, bytes)| (start * MIB, bytes * MIB)).collect();
    let used_bytes = blocks.iter().map(|(_, bytes)| bytes).sum();
    let usage = Usage { used_bytes, reserved_bytes: 64 * MIB, largest_free_bytes: None };
    let pieces = blocks.iter().map(|(start, bytes)| Extent { start: *start, bytes: *bytes }).collect();
    let space = Space::new(vec![Extent { start: 0, bytes: 64 * MIB }], pieces);
    let report =
        MemoryReport::new("a pool", usage).with_space(space, blocks.iter().copied().map(Extent::used));
    report.held_by_size(blocks)
}

fn failed(report: MemoryReport, mib: u64) -> MemoryReport {
    report.of_failure(FailedRequest { bytes: mib * MIB, align: 256, tag: None })
}

fn picture(report: &MemoryReport) -> String {
    let text = report.to_string();
    let (_, rest) = text.split_once('[').expect("a picture");
    rest.split_once(']').expect("its end").0.to_owned()
}

#[test]
fn free_ranges_lie_between_blocks_and_within_segments() {
    let extent = |(start, bytes)| Extent { start, bytes };
    let space = |segments: &[(u64, u64)], pieces: &[(u64, u64)]| {
        let extents = |of: &[(u64, u64)]| of.iter().copied().map(extent).collect();
        Space::new(extents(segments), extents(pieces))
    };
    for (segments, pieces, bytes, largest, ranges, ends) in [
        (&[(100, 50)][..], &[][..], 50, 50, 1, &[][..]),
        (&[(100, 50)], &[(100, 50)], 0, 0, 0, &[]),
        (&[(100, 50)], &[(110, 10), (120, 5)], 35, 25, 2, &[110]),
        // Neighbouring segments do not join, and pieces outside of them do not count.
        (&[(150, 50), (100, 50)], &[(10, 5), (140, 10), (180, 20), (300, 1)], 70, 40, 2, &[140, 180]),
        (&[(100, 50)], &[(110, 10), (112, 2), (115, 10)], 35, 25, 2, &[110]),
        (&[], &[(0, 4)], 0, 0, 0, &[]),
        (&[(0, 10)], &[(5, u64::MAX)], 5, 5, 1, &[5]),
    ] {
        let space = space(segments, pieces);
        let free = space.free();
        assert_eq!((free.bytes, free.largest, free.ranges), (bytes, largest, ranges), "{space:?}");
        assert_eq!(space.gap_ends(), ends, "{space:?}");
    }
}

#[test]
fn a_picture_has_a_cell_for_each_part_of_the_addresses() {
    assert_eq!(picture(&pool(&[])), ".".repeat(64));
    assert_eq!(picture(&pool(&[(0, 64)])), "#".repeat(64));
    assert_eq!(picture(&pool(&[(1, 2), (63, 1)])), format!(".##{}#", ".".repeat(60)));
    let space = Space::new(vec![Extent { start: 7, bytes: 3 }, Extent { start: 100, bytes: 7 }], vec![]);
    let used = [(Extent { start: 8, bytes: 2 }, 2), (Extent { start: 104, bytes: 9 }, 9)];
    let cells = space.picture(used);
    assert_eq!(cells.len(), 10, "one byte each");
    assert_eq!(cells.iter().map(|cell| cell.used_bytes).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 0, 0, 1, 1, 1]);
    let large = Space::new(vec![Extent { start: 0, bytes: 6401 }], vec![]);
    let cells = large.picture([(Extent { start: 0, bytes: 6401 }, 3200)]);
    assert_eq!((cells.len(), cells[0].bytes, cells[63].bytes), (64, 101, 38));
    assert_eq!(cells[1].used_bytes, 50, "evenly distributed");
    assert!(Space::new(vec![], vec![]).picture([(Extent { start: 1, bytes: 1 }, 1)]).is_empty());
}

#[test]
fn a_fragmentation_is_explained_by_the_blocks_that_cause_it() {
    let pins: Vec<(u64, u64)> = (0..16).map(|n| (4 * n + 3, 1)).collect();
    let report = failed(pool(&pins), 8);
    let free = (report.free_bytes, report.largest_free_bytes, report.free_ranges);
    assert_eq!(free, (48 * MIB, Some(3 * MIB), Some(16)));
    assert_eq!((report.fragmentation(), report.holders[0].ends_free_ranges), (0.9375, 16));
    let text = report.to_string();
    for part in [
        "Fragmented: 48.0 MiB are free, but in 16 ranges of at most 3.0 MiB.",
        "Blocks of 1.0 MiB to 2.0 MiB separate them: they end 16 ranges, and are 16 blocks with 16.0 MiB in total.",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let fits = &failed(pool(&pins), 3).advice[0];
    assert!(fits.starts_with("Enough memory is free now") && fits.contains("alignment"), "{fits}");
}

#[test]
fn memory_in_use_is_explained_by_the_holders() {
    let report = failed(pool(&[(0, 40), (40, 2), (42, 20)]), 4);
    assert_eq!(report.advice[0], "Not fragmented: too little memory is free.");
    assert!(report.advice[1].starts_with("Blocks of 32.0 MiB to 64.0 MiB hold 64 %"), "{report}");
    assert_eq!(report.advice.len(), 4, "the holder of 3 % is not named: {report}");
    let limited = MemoryReport { limit_bytes: Some(2 * MIB), ..pool(&[]) };
    assert!(failed(limited, 4).advice[0].starts_with("The request exceeds the limit of 2.0 MiB"));
    assert_eq!(pool(&[(0, 64)]).concluded().advice, [""; 0], "no allocation failed");
}

#[test]
fn without_the_request_the_cause_follows_from_what_is_free() {
    let pins: Vec<(u64, u64)> = (0..16).map(|n| (4 * n + 3, 1)).collect();
    let cause = |blocks: &[(u64, u64)]| {
        let report = MemoryReport { failed_allocations: Some(3), ..pool(blocks) };
        report.concluded().advice[0].clone()
    };
    assert!(cause(&pins).starts_with("Fragmented"));
    assert!(cause(&[(0, 63)]).starts_with("Not fragmented"));
    let unknown = cause(&[(0, 8)]);
    assert_eq!(
        unknown,
        "3 allocations failed, of sizes that are not recorded. The free memory now would serve requests of up to 56.0 MiB."
    );
}

#[test]
fn the_size_of_the_last_failed_allocation_decides_its_cause() {
    let pins: Vec<(u64, u64)> = (0..16).map(|n| (4 * n + 3, 1)).collect();
    let report = |blocks: &[(u64, u64)], last: u64| {
        let (failed_allocations, last_failed_bytes) = (Some(3), Some(last * MIB));
        MemoryReport { failed_allocations, last_failed_bytes, ..pool(blocks) }.concluded()
    };
    let cause = |blocks, last| report(blocks, last).advice[0].clone();
    assert!(cause(&pins, 4).starts_with("Fragmented"));
    assert!(cause(&pins, 49).starts_with("Not fragmented"));
    assert!(cause(&pins, 1 << 20).starts_with("Not fragmented"));
    assert!(cause(&[(0, 63)], 2).starts_with("Not fragmented"));
    // Little is free, but enough for the request, in two ranges.
    assert!(cause(&[(0, 29), (30, 33)], 2).starts_with("Fragmented"));
    // It would succeed now, in an allocator that is nearly full.
    let full = report(&[(0, 63)], 1);
    assert!(full.advice[0].starts_with("Not fragmented") && full.advice[1].contains("hold 100 %"), "{full}");
    // The free range would serve it now, so neither is the cause.
    assert_eq!(
        cause(&pins, 3),
        "3 allocations failed, the last one of 3.0 MiB. The free memory now would serve requests of up to 3.0 MiB."
    );
    let limited = MemoryReport { limit_bytes: Some(64 * MIB), ..report(&pins, 65) }.concluded();
    assert!(limited.advice[0].starts_with("The request exceeds the limit of 64.0 MiB"), "{limited}");
    assert!(limited.to_string().contains("failed     3 allocations so far, the last one of 65.0 MiB\n"));
}

/// The report of an allocator with these bytes, if only the driver knows the ranges.
fn without_ranges(used: u64, reserved: u64) -> MemoryReport {
    let usage = Usage { used_bytes: used * MIB, reserved_bytes: reserved * MIB, largest_free_bytes: None };
    MemoryReport::new("a pool", usage).held_by_size([(0, used * MIB)])
}

#[test]
fn without_ranges_a_report_says_nothing_of_fragmentation() {
    let of_device = |free: u64| MemoryReport {
        device_free_bytes: Some(free * MIB),
        device_total_bytes: Some(100 * MIB),
        ..without_ranges(8, 16)
    };
    let with_largest = MemoryReport { largest_free_bytes: Some(4 * MIB), ..without_ranges(8, 16) };
    for (report, mib, expected) in [
        (without_ranges(8, 16), 9, "Too little memory is free."),
        (without_ranges(8, 16), 4, "8.0 MiB are free, but it is not known in which ranges."),
        (with_largest.clone(), 6, "8.0 MiB are free, but it is not known in which ranges."),
        (with_largest, 4, "Enough memory is free now: "),
        (of_device(3), 12, "Too little memory is free: 3.0 MiB of 100.0 MiB on the device."),
        (
            of_device(3),
            2,
            "3.0 MiB of 100.0 MiB are free on the device, and 8.0 MiB in the allocator, but only",
        ),
    ] {
        let text = failed(report, mib).to_string();
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("ragmented"), "{text}");
    }
    let counted = MemoryReport { failed_allocations: Some(1), ..without_ranges(8, 16) }.concluded();
    let words = "1 allocation failed, of sizes that are not recorded. The free memory now is 8.0 MiB.";
    assert_eq!(counted.advice, [words]);
    assert!(failed(of_device(3), 2).to_string().contains("\n  device     3.0 MiB of 100.0 MiB free\n"));
}

#[test]
fn a_reached_limit_is_the_cause_whatever_is_free_below() {
    let limited = |limited: u64, limit: u64| MemoryReport {
        limit_bytes: Some(limit * MIB),
        limited_bytes: Some(limited * MIB),
        ..pool(&[(0, 20)])
    };
    let report = failed(limited(10, 12), 4);
    assert_eq!(
        report.advice[0],
        "The limit of 12.0 MiB is reached: 10.0 MiB count towards it. The allocator below has 44.0 MiB free."
    );
    assert!(report.advice[1].starts_with("Blocks of 16.0 MiB to 32.0 MiB hold 100 %"), "{report}");
    assert_eq!(report.advice[2], "Free them earlier, or raise the limit.");
    assert!(report.to_string().contains("in use     20.0 MiB of 64.0 MiB; limit 12.0 MiB, 10.0 MiB count"));
    assert_eq!(report.used_bytes + report.free_bytes + report.withheld_bytes, report.reserved_bytes);
    assert!(failed(limited(10, 12), 13).advice[0].starts_with("The request exceeds the limit of 12.0 MiB"));
    // Blocks of others may exceed the limit.
    assert!(failed(limited(4, 12), 8).advice[0].starts_with("Enough memory is free now"));
}

#[test]
fn the_alternate_form_is_one_line() {
    let pins: Vec<(u64, u64)> = (0..16).map(|n| (4 * n + 3, 1)).collect();
    let report = MemoryReport { failed_allocations: Some(3), ..pool(&pins) }.concluded();
    assert_eq!(
        format!("{report:#}"),
        "a pool: 16.0 MiB of 64.0 MiB in use, free 48.0 MiB in 16 ranges, the largest 3.0 MiB; fragmentation 93.8 %; \
         3 allocations failed. Fragmented: 48.0 MiB are free, but in 16 ranges of at most 3.0 MiB."
    );
    let unused = format!("{:#}", without_ranges(0, 16));
    assert_eq!(unused, "a pool: 0 B of 16.0 MiB in use, free 16.0 MiB");
}

#[test]
fn names_stay_on_their_line() {
    let name = "two\nlines\r\u{1b}[1m";
    let report = pool(&[(0, 64)]).held_by(HeldBy::Tag, [(0, 0, 1, 64 * MIB)], |_| (name.into(), None));
    let request = FailedRequest { bytes: MIB, align: 1, tag: Some(name.into()) };
    let report = MemoryReport { allocator: name.into(), ..report }.of_failure(request);
    let text = report.to_string();
    assert_eq!(text.matches(r"two\nlines\r\u{1b}[1m").count(), 4, "{text}");
    assert_eq!(text.lines().count(), 11, "{text}");
    assert_eq!(report.holders[0].name, name);
}

/// All figures at their extremes.
#[test]
fn printing_does_not_panic() {
    MemoryReport::default().to_string();
    let max = u64::MAX;
    let holder =
        Holder { name: "\n`".into(), blocks: max, bytes: max, freed: Some(max), ends_free_ranges: max };
    let report = MemoryReport {
        allocator: String::new(),
        used_bytes: max,
        reserved_bytes: max,
        limit_bytes: Some(0),
        limited_bytes: Some(max),
        device_free_bytes: Some(max),
        device_total_bytes: Some(0),
        free_bytes: max,
        withheld_bytes: max,
        largest_free_bytes: Some(max),
        free_ranges: Some(max),
        picture: vec![Cell { bytes: 0, used_bytes: 1 }, Cell { bytes: max, used_bytes: max - 1 }],
        holders: vec![holder; 9],
        failed_allocations: Some(max),
        ..MemoryReport::default()
    };
    for request in [None, Some(0), Some(1), Some(max)] {
        let request = request.map(|bytes| FailedRequest { bytes, align: max, tag: Some(String::new()) });
        let text = MemoryReport { request, ..report.clone() }.concluded().to_string();
        assert!(text.contains("[#9]") && text.ends_with('.'), "{text}");
    }
    let everywhere = Extent { start: 0, bytes: max };
    let space = Space::new(vec![everywhere, everywhere], vec![everywhere]);
    let used = [(everywhere, max), (Extent { start: 1, bytes: 1 }, max), (everywhere, max)];
    let report = report.with_space(space, used).held_by_size([(0, max), (max, max), (1, 0)]);
    assert_eq!(report.picture.len(), 64);
    assert!(!report.concluded().to_string().is_empty());
}

#[test]
fn a_report_is_serialisable() {
    let value = serde_json::to_value(failed(pool(&[(0, 1)]), 70)).unwrap();
    assert_eq!(value["held_by"], "size");
    assert_eq!(
        (&value["request"]["bytes"], &value["picture"][0]["used_bytes"]),
        (&(70 * MIB).into(), &MIB.into())
    );
    assert!(value.get("space").is_none());
}
