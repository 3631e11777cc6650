//! Axes, marks, charts and pictures.

use super::super::chart::{
    self, Axis, Card, Chart, LINE_TICKS, Line, Lines, ROW_TICKS, RULES, Row, Value, WIDTH, sample,
};
use super::super::svg::{self, STYLES, themed};
use super::{nodes, numbers};
use crate::report::human::Unit;
use roxmltree::Document;
use std::collections::BTreeSet;

fn powers(values: &[f64]) -> Option<Axis> {
    Axis::powers_of_two(values.iter().copied(), Unit::Threads)
}

fn decimal(values: &[f64]) -> Option<Axis> {
    Axis::decimal(values.iter().copied(), Unit::Micros, LINE_TICKS)
}

#[test]
fn threads_have_ticks_at_powers_of_two() {
    let axis = powers(&[1.0, 2f64.powi(24)]).unwrap();
    let labels: Vec<_> = axis.ticks.iter().map(|tick| Unit::Threads.tick(*tick)).collect();
    assert_eq!(labels, ["2⁰", "2⁴", "2⁸", "2¹²", "2¹⁶", "2²⁰", "2²⁴"]);
    assert!(axis.range.start < 1.0 && axis.range.end > 2f64.powi(24));
    assert_eq!(powers(&[16.0]).unwrap().ticks, [16.0, 32.0], "one value has an axis, too");
    assert_eq!(powers(&[0.0, -1.0, f64::NAN, f64::INFINITY]), None);
}

#[test]
fn every_range_has_a_few_round_ticks() {
    for (low, high) in
        [(1.0, 1.01), (0.9, 2.3), (3.0, 70.0), (1.0, 5e4), (1e-6, 9e9), (1e-9, 9e17), (5.0, 5.0)]
    {
        let axis = decimal(&[low, high]).unwrap();
        assert!((2..=LINE_TICKS).contains(&axis.ticks.len()), "{low} to {high}: {axis:?}");
        let is_inside = |tick| axis.range.contains(tick);
        assert!(axis.ticks.is_sorted() && axis.ticks.iter().all(is_inside), "{axis:?}");
        assert!(axis.range.start < low && high < axis.range.end && axis.range.end >= 2.0 * axis.range.start);
    }
    assert_eq!(decimal(&[]), None);
}

/// Each style has a colour, and differs from all others without it.
#[test]
fn styles_differ_without_colours() {
    let rules = themed(&[svg::RULES, RULES].concat(), "print");
    assert!(!rules.contains('$'), "{rules}");
    let mut drawn = BTreeSet::new();
    for style in 0..STYLES {
        let text = sample(style, "a series").into_string();
        Document::parse(&text).unwrap();
        assert_eq!(rules.matches(&format!(".chart .s{style}{{color:#")).count(), 2, "{rules}");
        drawn.insert(text.replace(&format!("s{style} "), ""));
    }
    assert_eq!(drawn.len(), STYLES);
}

fn lines(lines: &[Line]) -> Chart {
    let (x, y) = (powers(&[1.0, 1024.0]).unwrap(), decimal(&[2.0, 3.0]).unwrap());
    let (title, description, across, up) = ("a < b", "\u{1}", "<x>", "&y");
    Lines { title, description, x, across, y, up, reference: Some(2.5), shaded: Some(32.0), lines }.draw()
}

#[test]
fn a_chart_is_well_formed_and_has_a_title() {
    let points = [1.0, 1024.0, 0.0].map(|x| (x, Value { value: 3.0, range: (2.0, 1e300) }));
    let text = lines(&[Line { style: 0, points: points.to_vec() }, Line { style: 1, points: Vec::new() }])
        .svg
        .into_string();
    let document = Document::parse(&text).unwrap();
    let title = document.descendants().find(|node| node.has_tag_name("title")).unwrap();
    assert_eq!(title.text(), Some("a < b"));
    let marks: Vec<_> = nodes(&document, "full").filter_map(|node| node.attribute("d")).collect();
    assert_eq!(marks.concat().matches('M').count(), 2, "a point at 0 has no place on the axis");
    inside(&document);
}

#[test]
fn rows_have_a_target_and_long_names_are_shortened() {
    let name = "a name that is much too long for a row, because it has more than sixty letters";
    let row = Row {
        name: name.into(),
        dots: [1.0, 0.0].map(|value| (0, Value { value, range: (value, 2.0 * value) })).to_vec(),
        target: Some(3.0),
        text: "3 ✓".into(),
        is_marked: true,
    };
    let text = chart::rows("t", "d", &decimal(&[1.0, 3.0]).unwrap(), &[row.clone(), row]).svg.into_string();
    let document = Document::parse(&text).unwrap();
    assert!(text.contains("has more…") && !text.contains(name), "{text}");
    let counts = ["bold", "target", "band", "full"].map(|class| nodes(&document, class).count());
    assert_eq!(counts, [2; 4], "{text}");
    inside(&document);
}

/// All places are inside the picture.
fn inside(document: &Document<'_>) {
    for node in document.descendants() {
        let ends = node.attribute("d").unwrap_or_default().split('M').skip(1);
        let ends = ends.map(|path| path.split([' ', 'm', 'h', 'H']).next().unwrap().parse().unwrap());
        for at in ends.chain(numbers(&node, "x")) {
            assert!((0.0..=f64::from(WIDTH)).contains(&at), "{node:?}");
        }
    }
}

#[test]
fn labels_of_rows_do_not_touch() {
    let axis = Axis::decimal([7e6, 2e8].into_iter(), Unit::PairsPerSecond, ROW_TICKS).unwrap();
    let text = chart::rows("t", "d", &axis, &[]).svg.into_string();
    let document = Document::parse(&text).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    let at: Vec<f64> = texts.flat_map(|node| numbers(&node, "x")).collect();
    assert!(at.len() >= 3, "{at:?}");
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 7.0 * 6.0), "{at:?}");
}

#[test]
fn a_picture_has_the_chart_its_texts_and_its_legend() {
    let points = [1.0, 1024.0].map(|x| (x, Value { value: 3.0, range: (2.0, 4.0) }));
    let chart = lines(&[Line { style: 0, points: points.to_vec() }]);
    let names = ["<heap>", "a name that is rather long", "another name that is long"];
    let legend = names.map(|name| (0, name.to_owned())).to_vec();
    let card = Card { title: "a title".into(), note: "word ".repeat(40), chart, legend };
    let text = card.picture();
    let document = Document::parse(&text).unwrap();
    let drawn: Vec<_> = nodes(&document, "name").filter_map(|node| node.text()).collect();
    assert_eq!(drawn, names);
    let notes = nodes(&document, "dim").filter(|node| node.text().is_some_and(|text| text.contains("word")));
    assert_eq!(
        (nodes(&document, "title").count(), notes.count()),
        (1, 4),
        "a note of 200 letters has four lines"
    );
    let height = numbers(&document.root_element(), "height")[0];
    assert!(nodes(&document, "name").all(|node| numbers(&node, "y")[0] < height), "{text}");
    assert!(text.contains("prefers-color-scheme:dark") && text.contains("#3464a0"), "{text}");
}
