//! Cells, keys, shares and numbers.

use super::super::cells::{Content, Grid};
use super::super::key::{Group, Key, held};
use super::super::{date, ends, scaled, shares};
use super::{each_kind, large, map, of_kind, run};
use std::slice::from_ref;
use warpheap::device_pools::HeapMap;

/// The characters of all cells, and the slabs per cell.
fn glyphs(map: &HeapMap, columns: usize, rows: usize) -> (String, u64) {
    let (key, held) = (Key::of(from_ref(map)), held(map));
    let grid = Grid::new(map, &key, &held, columns, rows);
    (grid.cells.iter().map(|cell| cell.glyph()).collect(), grid.slabs_per_cell)
}

#[test]
fn a_cell_is_one_slab_while_there_is_room() {
    let map = each_kind();
    assert_eq!(glyphs(&map, 28, 1), ("Aa+bb#==----....?~~~~~~~~~~~".into(), 1));
    assert_eq!(glyphs(&map, 7, 4).1, 1);
}

#[test]
fn slabs_are_grouped_by_powers_of_two() {
    let map = each_kind();
    for (columns, slabs) in [(17, 1), (16, 2), (9, 2), (8, 4), (5, 4), (4, 8), (1, 32)] {
        assert_eq!(glyphs(&map, columns, 1).1, slabs, "{columns}");
    }
    // A full run and a sparse one; a free run and half of another; the rest of that and the start
    // of a large allocation, which has the most live bytes; the last cell has a single kind.
    assert_eq!(glyphs(&map, 14, 1).0, "Ab#=--..?~~~~~");
    let grid = Grid::new(&map, &Key::of(from_ref(&map)), &held(&map), 14, 1);
    let cells: Vec<_> = grid.cells.iter().map(|cell| (cell.level, cell.is_held)).collect();
    assert_eq!(cells[..5], [(3, true), (1, true), (3, true), (4, false), (0, false)]);
    assert!(grid.rows().map(|(slab, cells)| (slab, cells.len())).eq([(0, 14)]));
}

#[test]
fn rows_end_with_the_last_mapped_slab() {
    let unmapped = of_kind("unmapped");
    let growing = map("", &[(5, of_kind("fresh")), (4091, unmapped.clone())], &[]);
    assert_eq!(glyphs(&growing, 4, 8), (".....~~~".into(), 1));
    assert_eq!(glyphs(&map("", &[(5, of_kind("fresh")), (1, unmapped.clone())], &[]), 4, 8).0, ".....~");
    assert_eq!(glyphs(&map("", &[(9, unmapped)], &[]), 4, 8).0, "~~~~");
}

#[test]
fn a_large_allocation_that_starts_in_a_cell_is_seen() {
    let parts = [(1, large(1)), (11, large(11)), (1, of_kind("free")), (3, large(3))];
    assert_eq!(glyphs(&map("", &parts, &[]), 4, 1), ("#==#".into(), 4));
}

#[test]
fn a_cell_with_one_live_block_is_not_free() {
    let parts = [(2, of_kind("free")), (1, run(16, 1024, 1023)), (61, of_kind("fresh"))];
    assert_eq!(glyphs(&map("", &parts, &[]), 1, 1), ("a".into(), 64));
    let idle = [(2, of_kind("free")), (1, run(16, 1024, 1024)), (5, of_kind("fresh"))];
    assert_eq!(glyphs(&map("", &idle, &[]), 1, 1), (".".into(), 8), "most of the slabs");
    let broken = [(1, large(1)), (1, of_kind("unknown")), (2, large(2))];
    assert_eq!(glyphs(&map("", &broken, &[]), 1, 1), ("?".into(), 4), "it is always seen");
}

#[test]
fn levels_are_quarters_of_the_fill() {
    let level = |free: u32| {
        let map = map("", &[(1, run(64, 256, free))], &[]);
        Grid::new(&map, &Key::of(from_ref(&map)), &held(&map), 1, 1).cells[0].level
    };
    let levels = [256, 255, 192, 191, 128, 127, 64, 63, 0].map(level);
    assert_eq!(levels, [0, 1, 1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn a_run_over_several_cells_is_shared_among_them() {
    let map = map("", &[(3, run(1024, 48, 47)), (1, large(1))], &[]);
    let grid = Grid::new(&map, &Key::of(from_ref(&map)), &held(&map), 2, 1);
    let cells: Vec<_> = grid.cells.iter().map(|cell| (cell.content, cell.level)).collect();
    assert_eq!(cells, [(Content::Run(0), 1), (Content::Large, 3)]);
}

#[test]
fn held_slabs_are_those_of_the_class_of_the_span() {
    let map = each_kind();
    let held = held(&map);
    let slabs: Vec<_> = (0..held.len()).filter(|slab| held[*slab]).collect();
    assert_eq!(slabs, [1, 2, 4]);
    let sums = Key::of(from_ref(&map)).sums(&map, &held);
    let small = Group {
        slabs: 3,
        idle_slabs: 1,
        held_slabs: 2,
        blocks: 768,
        live_blocks: 312,
        bytes: 768 * 64,
        live_bytes: 312 * 64,
    };
    assert_eq!(sums[0], small);
    assert_eq!((sums[1].held_slabs, sums[1].live_bytes), (1, 4 * 4096));
}

#[test]
fn classes_share_letters_only_if_there_are_many() {
    let of = |classes: &[u64]| {
        let parts: Vec<_> = classes.iter().map(|class| (1, run(*class, 1, 0))).collect();
        let maps = [map("", &parts, &[]), map("", &[(1, run(16, 1, 0))], &[])];
        Key::of(&maps).names().map(|(letter, name)| format!("{letter} {name}")).collect::<Vec<_>>()
    };
    assert_eq!(of(&[48, 64]), ["a 16 B", "b 48 B", "c 64 B"]);
    let few: Vec<u64> = (2..17).map(|step| 16 * step).collect();
    assert_eq!(of(&few).len(), 16);
    let many: Vec<u64> = (2..18).map(|step| 16 * step).collect();
    let names = ["a 16 B", "b 32 B", "c 48 to 64 B", "d 80 to 128 B", "e 144 to 256 B", "f 272 B"];
    assert_eq!(of(&many), names);
}

#[test]
fn shares_sum_to_the_heap_and_end_where_they_should() {
    let map = each_kind();
    let parts = shares(&map, &map.totals());
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), map.heap_bytes);
    assert_eq!(ends(&parts, map.heap_bytes, 28).last(), Some(&28));
    assert_eq!(ends(&parts, map.heap_bytes, 28), [5, 5, 6, 9, 13, 17, 28]);
    assert_eq!((scaled(1, 2, 3), scaled(1, 4, 1), scaled(u64::MAX, u64::MAX, 100)), (2, 0, 100));
    assert_eq!(scaled(5, 0, 10), 50, "a heap of no size divides nothing by zero");
}

#[test]
fn a_map_has_a_date() {
    let mut map = map("", &[(1, large(1))], &[]);
    assert_eq!(date(&map), "");
    map.unix_seconds = 1_764_072_000;
    assert_eq!(date(&map), "2025-11-25 12:00:00 UTC");
    map.unix_seconds = u64::MAX;
    assert_eq!(date(&map), "");
}
