//! Cells, keys, shares and texts of small heaps.

use super::*;
use serde_json::{Value, json};
use std::slice::from_ref;

/// Bytes of a slab.
const SLAB: u64 = 16 << 10;

/// Parts of a map, each with its number of slabs.
pub type Parts<'a> = &'a [(u32, Value)];

/// A valid map of these parts. `spans`: block size, first slab and slabs.
pub fn map(label: &str, parts: Parts<'_>, spans: &[(u64, u32, u32)]) -> HeapMap {
    let mut end = 0;
    let part = |(slabs, content): &(u32, Value)| {
        let mut part = content.clone();
        (part["first_slab"], part["slabs"]) = (end.into(), (*slabs).into());
        end += slabs;
        part
    };
    let parts: Vec<Value> = parts.iter().map(part).collect();
    let span = |&(block_bytes, first_slab, slabs): &(u64, u32, u32)| json!({"block_bytes": block_bytes, "shard": 0, "first_slab": first_slab, "slabs": slabs, "is_current": true});
    let is_unmapped = |part: &&Value| part["kind"] == "unmapped";
    let unmapped: u64 = parts.iter().filter(is_unmapped).filter_map(|part| part["slabs"].as_u64()).sum();
    let heap_bytes = u64::from(end) * SLAB;
    let map = json!({
        "schema": HeapMap::SCHEMA, "label": label, "unix_seconds": 0, "heap_bytes": heap_bytes, "slab_bytes": SLAB,
        "mapped_bytes": heap_bytes - unmapped * SLAB, "failed_allocations": 3, "faults": 0, "parts": parts,
        "spans": spans.iter().map(span).collect::<Vec<_>>(),
    });
    let map: HeapMap = serde_json::from_value(map).unwrap();
    map.validate().unwrap();
    map
}

pub fn run(block_bytes: u64, blocks: u32, free_blocks: u32) -> Value {
    json!({"kind": "run", "block_bytes": block_bytes, "blocks": blocks, "free_blocks": free_blocks})
}

pub fn large(slabs: u64) -> Value {
    json!({"kind": "large", "bytes": slabs * SLAB})
}

/// Slabs of a kind without further fields.
pub fn of_kind(kind: &str) -> Value {
    json!({"kind": kind})
}

/// One part of each kind, in 28 slabs.
pub fn each_kind() -> HeapMap {
    let parts = [
        (1, run(64, 256, 0)),
        (1, run(64, 256, 200)),
        (1, run(64, 256, 256)),
        (2, run(4096, 8, 4)),
        (3, large(3)),
        (4, of_kind("free")),
        (4, of_kind("fresh")),
        (1, of_kind("unknown")),
        (11, of_kind("unmapped")),
    ];
    // The second span was taken by another class since.
    map("each <kind> & \"more\"", &parts, &[(64, 1, 2), (48, 3, 2), (4096, 4, 1)])
}

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

fn text(maps: &[HeapMap], width: usize, has_colour: bool) -> String {
    terminal(maps, Style { width, has_colour, is_terminal: false })
}

const EACH_KIND: &str = r#"heap map: each <kind> & "more"
  heap       448.00 KiB, 272.00 KiB mapped; 28 slabs of 16.00 KiB
  live       83.50 KiB (30.7 %) in 317 blocks; large ones: 48.00 KiB
  free       172.50 KiB (63.4 %); in free slabs: 128.00 KiB
             largest range 128.00 KiB; fragmentation 25.8 %
  failed     3 allocations, 0 faults
  BROKEN     metadata of 16.00 KiB; see `check`
  a cell     1 slab, 16.00 KiB

       0 B  Aa+bb#==----....
             ^^ ^
256.00 KiB  ?~~~~~~~~~~~

   class     slabs  held  idle  blocks  live    fill
   a 64 B        3     2     1     768   312  40.6 %
   b 4096 B      2     1     0       8     4  50.0 %

  a  run of class a; live: up to half of its blocks, A: more
  +  run without a live block (idle): its slabs are free for any class
  #  large allocation; = marks its other slabs
  -  free slab, used before
  .  slab that was never used
  ~  no memory mapped
  ?  contradictory metadata; call `check`
  ^  held: in a span in which a cursor of its class looks for free blocks first"#;

#[test]
fn the_text_of_a_small_heap() {
    assert_eq!(text(&[each_kind()], 40, false), EACH_KIND);
}

#[test]
fn a_legend_explains_only_what_is_there() {
    let text = text(&[map("new", &[(64, of_kind("fresh"))], &[])], 100, false);
    assert!(text.contains(".  slab that was never used") && !text.contains("class"), "{text}");
    assert!(!text.contains("large allocation") && !text.contains("^"), "{text}");
}

/// A text without its escape sequences.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').expect("a sequence ends").1)
}

#[test]
fn colours_add_nothing_but_colours() {
    let (coloured, without) = (text(&[each_kind()], 80, true), text(&[each_kind()], 80, false));
    assert!(!without.contains('\x1b'));
    assert_eq!(plain(&coloured), without);
    // A full and a sparse run of a class differ in brightness; two classes differ in hue.
    let row = coloured.lines().find(|line| line.trim_start().starts_with("0 B")).unwrap();
    let backgrounds: Vec<_> =
        row.split("\x1b[48;5;").skip(1).map(|part| part.split(';').next().unwrap()).collect();
    assert_eq!(backgrounds[0], (16 + 36 * 2 + 6 * 3 + 5).to_string());
    let distinct: std::collections::BTreeSet<_> = backgrounds[..4].iter().collect();
    assert_eq!(distinct.len(), 4, "{row:?}");
    assert!(row.ends_with("\x1b[0m") || row.ends_with('~'), "{row:?}");
}

#[test]
fn lines_are_not_wider_than_asked() {
    let parts = [(900, of_kind("fresh")), (100, large(100)), (3000, of_kind("free"))];
    let map = map(&"long ".repeat(40), &parts, &[]);
    for width in [70, 80, 100, 250] {
        let text = text(from_ref(&map), width, false);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width, "{widest} of {width} columns: {text}");
    }
}

/// Two maps: a full heap, and the same in which one block of each run stayed.
pub fn two_maps() -> [HeapMap; 2] {
    let parts = |free| -> Vec<_> { (0..20).map(|_| (1, run(1024, 16, free))).collect() };
    [map("before", &parts(0), &[]), map("after", &parts(15), &[])]
}

#[test]
fn several_maps_are_compared_over_time() {
    let text = text(&two_maps(), 47, false);
    let (_, text) = text.split_once("over time\n").unwrap();
    let bars: Vec<_> = text.lines().skip(1).take(3).collect();
    let (first, second) = ("#".repeat(40), "###".to_owned() + &"+".repeat(37));
    assert_eq!(bars, [format!("   1  {first}"), format!("   2  {second}"), "  #  live".into()]);
    let row = text.lines().find(|line| line.trim_start().starts_with("2 after")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[2..4], ["20.00", "KiB"], "{row}");
    assert!(row.contains("300.00 KiB") && row.contains("1.00 KiB") && row.contains("99.7 %"), "{row}");
    assert_eq!(row.split_whitespace().last(), Some("3"), "{row}");
}
