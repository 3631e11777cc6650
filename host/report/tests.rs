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
    let is_other = failed(pool(&pins), 3).advice[0].starts_with("Enough memory is free now");
    assert!(is_other);
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
    assert!(cause(&[(0, 8)]).starts_with("Enough memory is free now"));
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
