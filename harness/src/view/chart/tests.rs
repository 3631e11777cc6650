use super::lines::{Chart, Line, Point, X_TICKS, Y_TICKS};
use super::marks::{DASHES, STYLES, sample};
use super::picture::Card;
use super::rows::{self, Dot, Row};
use super::scale::Axis;
use super::{SCALE, WIDTH};
use crate::report::human::Unit;
use crate::view::map;
use crate::view::palette::{DEEP, PALE};
use std::collections::BTreeSet;

fn powers(values: &[f64]) -> Option<Axis> {
    Axis::powers_of_two(values.iter().copied(), Unit::Threads, X_TICKS)
}

fn decimal(values: &[f64]) -> Option<Axis> {
    Axis::decimal(values.iter().copied(), Unit::Micros, Y_TICKS)
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
        assert!((2..=Y_TICKS).contains(&axis.ticks.len()), "{low} to {high}: {axis:?}");
        assert!(
            axis.ticks.is_sorted() && axis.ticks.iter().all(|tick| axis.range.contains(tick)),
            "{axis:?}"
        );
        assert!(axis.range.start < low && high < axis.range.end && axis.range.end >= 2.0 * axis.range.start);
    }
    assert_eq!(decimal(&[]), None);
}

/// Colour, shape and dashes are drawn for every style; without colours all of them still differ.
#[test]
fn styles_differ_without_colours() {
    let mut drawn = BTreeSet::new();
    for style in 0..STYLES {
        let text = sample(style, "a series").unwrap().svg.into_string();
        roxmltree::Document::parse(&text).unwrap();
        let colour = DEEP[style].to_uppercase();
        assert!(text.contains(&colour), "{text}");
        drawn.insert((text.replace(&colour, "colour"), DASHES[style]));
    }
    assert_eq!(drawn.len(), STYLES);
}

#[test]
fn charts_and_maps_share_their_palette() {
    let style = map::STYLE;
    for (index, (pale, deep)) in PALE.iter().zip(DEEP).enumerate() {
        for hex in [pale, deep] {
            assert!(style.contains(&format!(".heap-map .c{index}{{fill:{hex}}}")), "{index}: {hex}");
        }
    }
}

#[test]
fn a_chart_is_well_formed_and_has_a_title() {
    let points = [1.0, 1024.0, 0.0].map(|x| Point { x, y: 3.0, range: (2.0, 1e300) });
    let lines = [Line { style: 0, points: points.to_vec() }, Line { style: 1, points: Vec::new() }];
    let (x, y) = (powers(&[1.0, 1024.0]).unwrap(), decimal(&[2.0, 3.0]).unwrap());
    let chart = Chart {
        title: "a < b",
        description: "\u{1}",
        across: "<x>",
        up: "&y",
        x,
        y,
        reference: Some(2.5),
        shaded: Some(32.0),
        lines: &lines,
    };
    let text = chart.svg().unwrap().svg.into_string();
    let document = roxmltree::Document::parse(&text).unwrap();
    let title = document.descendants().find(|node| node.has_tag_name("title")).unwrap();
    assert_eq!(title.text(), Some("a < b"));
    let circles = document.descendants().filter(|node| node.has_tag_name("circle"));
    assert_eq!(circles.count(), 2, "a point at 0 has no place on the axis");
    inside(&document);
}

#[test]
fn rows_have_a_target_and_long_names_are_shortened() {
    let dot = |value| Dot { style: 0, value, range: (value, 2.0 * value) };
    let name = "a name that is much too long for a row, because it has more than sixty letters";
    let row = Row {
        name: name.into(),
        dots: vec![dot(1.0), dot(0.0)],
        target: Some(3.0),
        text: "3 ✓".into(),
        is_marked: true,
    };
    let axis = decimal(&[1.0, 3.0]).unwrap();
    let chart = rows::Chart { title: "t", description: "d", axis, rows: &[row.clone(), row] };
    let text = chart.svg().unwrap().svg.into_string();
    let document = roxmltree::Document::parse(&text).unwrap();
    assert!(text.contains("has more…") && !text.contains(name), "{text}");
    assert!(text.contains("font-weight=\"bold\""), "{text}");
    inside(&document);
}

/// All coordinates are inside the picture.
fn inside(document: &roxmltree::Document<'_>) {
    let width = f64::from(WIDTH * SCALE);
    for node in document.descendants() {
        for name in ["x", "x1", "x2", "cx"] {
            let Some(at) = node.attribute(name) else { continue };
            let at: f64 = at.trim().parse().unwrap();
            assert!((0.0..=width).contains(&at), "{node:?}");
        }
    }
}

/// The horizontal centres of the labels of an axis of rows.
fn labels(values: &[f64], unit: Unit) -> Vec<i32> {
    let axis = Axis::decimal(values.iter().copied(), unit, rows::TICKS).unwrap();
    let chart = rows::Chart { title: "t", description: "d", axis, rows: &[] };
    let text = chart.svg().unwrap().svg.into_string();
    let document = roxmltree::Document::parse(&text).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.map(|node| node.attribute("x").unwrap().parse().unwrap()).collect()
}

#[test]
fn labels_of_rows_do_not_touch() {
    let at = labels(&[7e6, 2e8], Unit::PairsPerSecond);
    assert!(at.len() >= 3, "{at:?}");
    let least = (7 * 6 * SCALE) as i32;
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= least), "{at:?}");
}

#[test]
fn a_picture_has_the_chart_its_texts_and_its_legend() {
    let points = [1.0, 1024.0].map(|x| Point { x, y: 3.0, range: (2.0, 4.0) });
    let lines = [Line { style: 0, points: points.to_vec() }];
    let (x, y) = (powers(&[1.0, 1024.0]).unwrap(), decimal(&[2.0, 4.0]).unwrap());
    let chart = Chart {
        title: "a title",
        description: "d",
        across: "x",
        up: "y",
        x,
        y,
        reference: None,
        shaded: None,
        lines: &lines,
    };
    let names = ["<heap>", "a name that is rather long", "another name that is long"];
    let card = Card {
        title: "a title".into(),
        note: "word ".repeat(40),
        chart: chart.svg().unwrap(),
        legend: names.map(|name| (sample(0, name).unwrap(), name.to_owned())).to_vec(),
    };
    let text = card.picture();
    let document = roxmltree::Document::parse(&text).unwrap();
    let of = |class: &str| -> Vec<_> {
        document.descendants().filter(|node| node.attribute("class") == Some(class)).collect()
    };
    assert_eq!(of("name").iter().filter_map(|node| node.text()).collect::<Vec<_>>(), names);
    assert_eq!((of("title").len(), of("note").len()), (1, 4), "a note of 200 letters has four lines");
    let height: u32 = document.root_element().attribute("height").unwrap().parse().unwrap();
    let mut lowest = of("name").into_iter().map(|node| node.attribute("y").unwrap().parse::<u32>().unwrap());
    assert!(lowest.all(|y| y < height), "{text}");
    for part in ["prefers-color-scheme:dark", "--c0:"] {
        assert!(text.contains(part), "{part}");
    }
}
