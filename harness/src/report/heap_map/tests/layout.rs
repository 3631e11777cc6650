//! Nothing in an SVG overlaps or is cut.

use super::{each_kind, map, of_kind, run};
use crate::view::map::svg;
use roxmltree::{Document, Node};
use std::collections::BTreeSet;
use warpheap::device_pools::HeapMap;

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

fn numbers(node: &Node<'_, '_>, attribute: &str) -> Vec<f64> {
    let numbers = node.attribute(attribute).unwrap_or("0").split(' ');
    numbers.map(|number| number.parse().unwrap()).collect()
}

/// The left end, the right end and the baseline of a text, in a wide font.
fn extent(text: &Node<'_, '_>) -> (f64, f64, f64) {
    let per_character = match text.attribute("class") {
        Some("title") => 9.0,
        Some("offset" | "glyph") => 5.4,
        _ => 6.2,
    };
    let columns = |c: char| if c >= '\u{1100}' { 2.0 } else { 1.0 };
    let width: f64 = per_character * text.text().unwrap_or("").chars().map(columns).sum::<f64>();
    let (x, y) = (numbers(text, "x"), numbers(text, "y")[0]);
    let (first, last) = (x[0], x[x.len() - 1]);
    match text.attribute("text-anchor") {
        _ if text.attribute("class") == Some("glyph") => (first - 4.5, last + 4.5, y),
        Some("middle") => (first - width / 2.0, first + width / 2.0, y),
        Some("end") => (first - width, first, y),
        _ => (first, first + width, y),
    }
}

#[test]
fn nothing_is_outside_the_picture() {
    let text = svg(&maps());
    let svg = Document::parse(&text).unwrap();
    let view = numbers(&svg.root_element(), "viewBox");
    let is = |node: &Node<'_, '_>, name: &str| node.has_tag_name(name);
    for text in svg.descendants().filter(|node| is(node, "text")) {
        let (left, right, baseline) = extent(&text);
        assert!(left >= 0.0 && right <= view[2], "{left} to {right}: {:?}", text.text());
        assert!(baseline >= ASCENT && baseline <= view[3] - 3.0, "{baseline}: {:?}", text.text());
    }
    for rect in svg.descendants().filter(|node| is(node, "rect")) {
        let of = |name| numbers(&rect, name)[0];
        assert!(of("x") + of("width") <= view[2] && of("y") + of("height") <= view[3], "{rect:?}");
    }
}

#[test]
fn no_texts_overlap() {
    let text = svg(&maps());
    let svg = Document::parse(&text).unwrap();
    let texts: Vec<_> = svg.descendants().filter(|node| node.has_tag_name("text")).collect();
    let mut texts: Vec<_> = texts.iter().map(|text| (extent(text), text.text())).collect();
    texts.sort_by(|((.., one), _), ((.., other), _)| one.total_cmp(other));
    assert!(texts.len() > 2000);
    for (index, &((left, right, baseline), text)) in texts.iter().enumerate() {
        let near = texts[index + 1..].iter().take_while(|((.., below), _)| *below < baseline + ASCENT);
        for &((other_left, other_right, _), other) in near {
            assert!(right <= other_left || other_right <= left, "{text:?} and {other:?} at {baseline}");
        }
    }
}

/// Each row of cells has its characters and its offset at the same height.
#[test]
fn offsets_and_characters_are_on_their_cells() {
    let text = svg(&[map("three rows", &[(96, of_kind("fresh"))], &[])]);
    let svg = Document::parse(&text).unwrap();
    let path =
        svg.descendants().find(|node| node.has_tag_name("path") && node.attribute("class") == Some("fresh"));
    let cells = path.unwrap().attribute("d").unwrap().split('M').skip(1);
    let top = |cell: &str| cell.split([' ', 'h']).nth(1).unwrap().parse::<f64>().unwrap();
    let rows: BTreeSet<u32> = cells.map(|cell| top(cell) as u32).collect();
    let of = |class: &'static str| {
        let texts = svg.descendants().filter(move |node| node.attribute("class") == Some(class));
        texts.map(|text| numbers(&text, "y")[0] as u32 - 9)
    };
    assert_eq!(rows.len(), 3);
    assert!(of("offset").eq(rows.iter().copied()), "{rows:?}");
    assert!(of("glyph").take(3).eq(rows.iter().copied()), "{rows:?}");
}
