//! Texts and SVGs.

use super::super::{Style, terminal};
use super::{each_kind, large, map, of_kind, run};
use crate::view::map::svg;
use roxmltree::{Document, Node};
use std::slice::from_ref;
use warpheap::device_pools::HeapMap;

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
  #  large allocation, and = its other slabs
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
fn two_maps() -> [HeapMap; 2] {
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

fn nodes<'a>(svg: &'a Document<'a>, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    let is_of_class = move |node: &Node<'_, '_>| {
        node.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
    };
    svg.descendants().filter(is_of_class)
}

/// The number of cells in the path of a class. Samples in the legend are rectangles.
fn cells(svg: &Document<'_>, class: &str) -> usize {
    let paths = nodes(svg, class).filter(|node| node.has_tag_name("path"));
    paths.map(|path| path.attribute("d").unwrap().matches('M').count()).sum()
}

#[test]
fn an_svg_is_well_formed_and_has_all_cells_and_figures() {
    let text = svg(&[each_kind()]);
    let svg = Document::parse(&text).unwrap();
    let of = |class| cells(&svg, class);
    let found = ["c0", "c1", "large", "free", "fresh", "unknown", "unmapped", "held"].map(of);
    assert_eq!(found, [3, 2, 3, 4, 4, 1, 11, 3]);
    assert_eq!((of("l0"), of("l1"), of("l2"), of("l4")), (1, 1, 2, 1));
    let texts: Vec<_> = svg.descendants().filter(|node| node.has_tag_name("text")).collect();
    let all: Vec<_> = texts.iter().filter_map(|node| node.text()).collect();
    for part in [
        "each <kind> & \"more\"",
        "a cell is one slab, 16.00 KiB",
        "83.50 KiB (30.7 %) in 317 blocks; large ones: 48.00 KiB",
        "172.50 KiB (63.4 %); in free slabs: 128.00 KiB",
        "largest range 128.00 KiB; fragmentation 25.8 %",
        "64 B",
        "312 / 768",
        "40.6 %",
        "Aa+bb#==----....?~~~~~~~~~~~",
    ] {
        assert!(all.contains(&part), "no {part:?} in {all:#?}");
    }
    assert!(!text.contains("<script") && text.contains("prefers-color-scheme:dark"));
    let title = svg.descendants().find(|node| node.has_tag_name("title")).unwrap();
    assert_eq!(title.text(), Some("Heap map: each <kind> & \"more\""));
}

#[test]
fn bars_over_time_have_the_heights_of_their_parts() {
    let text = svg(&two_maps());
    let svg = Document::parse(&text).unwrap();
    let heights = |class| -> Vec<u32> {
        // The last rectangle is the sample in the legend.
        let all = nodes(&svg, class).map(|node| node.attribute("height").unwrap().parse().unwrap());
        let all: Vec<u32> = all.collect();
        all[..all.len() - 1].to_vec()
    };
    assert_eq!((heights("s-live"), heights("s-runs")), (vec![160, 10], vec![150]));
    let texts: Vec<_> = svg.descendants().filter_map(|node| node.text()).collect();
    for part in ["Over time", "free inside runs", "1 before", "2 after", "320.00 KiB", "99.7 %"] {
        assert!(texts.contains(&part), "no {part:?}");
    }
    assert!(!texts.contains(&"never used"), "no map has it");
}
