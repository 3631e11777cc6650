//! Pictures of maps: all cells and figures are there, and nothing overlaps or is cut.

use super::super::picture_of_maps;
use super::{nodes, numbers};
use crate::report::heap_map::tests::{each_kind, map, of_kind, run, two_maps};
use roxmltree::{Document, Node};
use std::collections::BTreeSet;
use warpheap::device_pools::HeapMap;

#[test]
fn an_svg_is_well_formed_and_has_all_cells_and_figures() {
    let text = picture_of_maps(&[each_kind()]);
    let svg = Document::parse(&text).unwrap();
    // Samples in the legend are rectangles.
    let of = |class| {
        let paths = nodes(&svg, class).filter(|node| node.has_tag_name("path"));
        paths.map(|path| path.attribute("d").unwrap().matches('M').count()).sum::<usize>()
    };
    let found = ["c0", "c1", "large", "free", "fresh", "unknown", "unmapped", "held"].map(of);
    assert_eq!(found, [3, 2, 3, 4, 4, 1, 11, 3]);
    assert_eq!((of("l0"), of("l1"), of("l2"), of("l4")), (1, 1, 2, 1));
    let all: Vec<_> = svg.descendants().filter_map(|node| node.text()).collect();
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
        "Heap map: each <kind> & \"more\"",
    ] {
        assert!(all.contains(&part), "no {part:?} in {all:#?}");
    }
    assert!(!text.contains("<script") && text.contains("prefers-color-scheme:dark") && !text.contains('$'));
}

#[test]
fn bars_over_time_have_the_heights_of_their_parts() {
    let text = picture_of_maps(&two_maps());
    let svg = Document::parse(&text).unwrap();
    let heights = |class| {
        // The last rectangle is the sample in the legend.
        let mut all: Vec<_> = nodes(&svg, class).map(|node| numbers(&node, "height")[0]).collect();
        all.pop();
        all
    };
    assert_eq!((heights("s-live"), heights("s-runs")), (vec![160.0, 10.0], vec![150.0]));
    let texts: Vec<_> = svg.descendants().filter_map(|node| node.text()).collect();
    for part in ["Over time", "free inside runs", "1 before", "2 after", "320.00 KiB", "99.7 %"] {
        assert!(texts.contains(&part), "no {part:?}");
    }
    assert!(!texts.contains(&"never used"), "no map has it");
}

/// The height of a line of text above its baseline, at least.
const ASCENT: f64 = 8.0;

/// Maps with long labels, many classes and large numbers.
fn maps() -> Vec<HeapMap> {
    let long = |classes: u32| {
        let class = |slab: u32| 16 << (slab % classes);
        let parts: Vec<_> = (0..5000)
            .map(|slab| (1, run(class(slab), ((16 << 10) / class(slab)) as u32, slab % 2)))
            .collect();
        map(&"<é>&\u{1}堆".repeat(99), &parts, &[(16, 0, 5000)])
    };
    let many = (0..98).map(|_| each_kind());
    [each_kind(), long(1), long(10)].into_iter().chain(many).collect()
}

/// The left end, the right end and the baseline of a text, in a wide font.
fn extent(text: &Node<'_, '_>) -> (f64, f64, f64) {
    let classes = text.attribute("class").unwrap_or_default();
    let has = |class| classes.split(' ').any(|one| one == class);
    let per_character = match classes {
        "title" => 9.0,
        "offset" | "glyph" => 5.4,
        _ => 6.2,
    };
    let columns = |c: char| if c >= '\u{1100}' { 2.0 } else { 1.0 };
    let width: f64 = per_character * text.text().unwrap_or("").chars().map(columns).sum::<f64>();
    let (x, y) = (numbers(text, "x"), numbers(text, "y")[0]);
    let (first, last) = (x[0], x[x.len() - 1]);
    match () {
        () if has("glyph") => (first - 4.5, last + 4.5, y),
        () if has("middle") => (first - width / 2.0, first + width / 2.0, y),
        () if has("end") || has("offset") => (first - width, first, y),
        () => (first, first + width, y),
    }
}

#[test]
fn nothing_is_outside_the_picture_and_no_texts_overlap() {
    let text = picture_of_maps(&maps());
    let svg = Document::parse(&text).unwrap();
    let view = numbers(&svg.root_element(), "viewBox");
    let of = |tag: &'static str| svg.descendants().filter(move |node| node.has_tag_name(tag));
    for rect in of("rect") {
        let of = |name| numbers(&rect, name)[0];
        assert!(of("x") + of("width") <= view[2] && of("y") + of("height") <= view[3], "{rect:?}");
    }
    let mut texts: Vec<_> = of("text").map(|text| (extent(&text), text.text())).collect();
    texts.sort_by(|((.., one), _), ((.., other), _)| one.total_cmp(other));
    assert!(texts.len() > 2000);
    for (index, &((left, right, baseline), text)) in texts.iter().enumerate() {
        assert!(left >= 0.0 && right <= view[2], "{left} to {right}: {text:?}");
        assert!(baseline >= ASCENT && baseline <= view[3] - 3.0, "{baseline}: {text:?}");
        let near = texts[index + 1..].iter().take_while(|((.., below), _)| *below < baseline + ASCENT);
        for &((other_left, other_right, _), other) in near {
            assert!(right <= other_left || other_right <= left, "{text:?} and {other:?} at {baseline}");
        }
    }
}

/// Each row of cells has its characters and its offset at the same height.
#[test]
fn offsets_and_characters_are_on_their_cells() {
    let text = picture_of_maps(&[map("three rows", &[(96, of_kind("fresh"))], &[])]);
    let svg = Document::parse(&text).unwrap();
    let path = nodes(&svg, "fresh").find(|node| node.has_tag_name("path")).unwrap();
    let cells = path.attribute("d").unwrap().split('M').skip(1);
    let rows: BTreeSet<u32> =
        cells.map(|cell| cell.split([' ', 'h']).nth(1).unwrap().parse().unwrap()).collect();
    let of = |class| nodes(&svg, class).map(|text| numbers(&text, "y")[0] as u32 - 9);
    assert_eq!(rows.len(), 3);
    assert!(of("offset").eq(rows.iter().copied()), "{rows:?}");
    assert!(of("glyph").take(3).eq(rows.iter().copied()), "{rows:?}");
}
