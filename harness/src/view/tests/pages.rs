//! Pages: all values, failures and origins are in them, and hostile texts are escaped.
//!
//! `page.txt` is the text of a page of all kinds of results. `WARPHEAP_UPDATE=1` writes it again.

use super::super::page;
use crate::report::compare::Old;
use crate::report::results::Results;
use serde_json::{Value, json};
use std::fs;

const ALLOC: &str = include_str!("../../../../results/h200-2026-11-25/bench-heap-alloc.json");
const CHURN: &str = include_str!("../../../../results/h200-2026-11-25/bench-heap-churn.json");
const STRESS: &str = include_str!("../../../../results/h200-2026-11-25/stress-default.json");
const PAIRS: &str = include_str!("../../../../results/h200-2026-11-23/pool-pair.json");
const RANDOM: &str = include_str!("../../../../results/h200-2026-11-23/pool-random-to-1-MiB.json");

fn read(text: &str) -> Results {
    Results::parse(text.into()).unwrap()
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn page_of(texts: &[&str]) -> String {
    page(&texts.iter().map(|text| read(text)).collect::<Vec<_>>(), None)
}

/// The parts of a page from each `start` to the next `end`, both included.
fn parts<'a>(page: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    let starts = page.match_indices(start).map(|(at, _)| at);
    starts.map(|at| &page[at..at + page[at..].find(end).unwrap() + end.len()]).collect()
}

/// Every chart is well-formed and has a title and a description.
fn charts(page: &str) -> usize {
    let charts = parts(page, "<svg", "</svg>");
    for chart in &charts {
        let document = roxmltree::Document::parse(chart).unwrap_or_else(|error| panic!("{error}: {chart}"));
        for name in ["title", "desc"] {
            let node = document.descendants().find(|node| node.has_tag_name(name)).unwrap();
            assert!(node.text().is_some_and(|text| !text.is_empty()), "{chart}");
        }
    }
    charts.len()
}

/// The embedded results of a page.
fn embedded(page: &str) -> Vec<Value> {
    let scripts = parts(page, "<script", "</script>");
    let text = |script: &str| script.split_once('>').unwrap().1.strip_suffix("</script>").unwrap().to_owned();
    scripts.into_iter().map(|script| serde_json::from_str(&text(script)).unwrap()).collect()
}

/// The text of a page, a line for each row, paragraph, and text of a chart.
fn text_of(page: &str) -> String {
    let mut text = String::new();
    for part in page.split('<') {
        let (tag, content) = part.split_once('>').unwrap_or(("", part));
        let name = tag.split(' ').next().unwrap_or_default();
        text += match name {
            "/td" | "/th" | "/dt" | "/strong" | "/span" => " | ",
            "td" | "th" | "dd" | "strong" | "code" | "/code" | "data" | "/data" | "span" => "",
            _ => "\n",
        };
        text += if ["style", "script"].contains(&name) { "" } else { content };
    }
    let lines =
        text.lines().map(|line| line.trim().trim_end_matches(['|', ' '])).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// All kinds of results, compared with older ones: figures without a value and those that miss
/// their targets, wrong results, failed operations, what was left out, findings, and where all
/// comes from.
#[test]
fn the_text_of_a_page_is_as_committed() {
    let seeds = [
        include_str!("../../../tests/corpus/seeds/suite.json"),
        include_str!("../../../tests/corpus/seeds/stress.json"),
        include_str!("../../../tests/corpus/seeds/pools.json"),
    ];
    let mut suite = json_of(seeds[0]);
    let mut old = suite.clone();
    for name in ["median_us", "min_us", "max_us"] {
        let time = &mut old["data"]["figures"][0]["time"][name];
        *time = json!(time.as_f64().unwrap() / 2.0);
    }
    old["data"]["wrong"] = json!([]);
    let mut latency = suite["data"]["latency"][0].clone();
    (latency["threads"], latency["failed"]) = (65_536.into(), 3.into());
    suite["data"]["latency"].as_array_mut().unwrap().push(latency);
    suite["data"]["figures"][0]["passed"] = false.into();
    suite["data"]["figures"][1]["value"] = Value::Null;
    suite["title"] = json!("Lists <in> kernels");
    let old = Old { file: "old.json".into(), results: read(&old.to_string()), threshold: 0.1 };
    let results = [&suite.to_string(), seeds[1], seeds[2]].map(read);
    let comparison = old.compare(&results).unwrap();
    let page = page(&results, Some(&comparison));
    let page = page.replace(concat!("by warpheap ", env!("CARGO_PKG_VERSION")), "by warpheap");
    charts(&page);
    let (text, file) = (text_of(&page), concat!(env!("CARGO_MANIFEST_DIR"), "/src/view/tests/page.txt"));
    if std::env::var_os("WARPHEAP_UPDATE").is_some() {
        fs::write(file, &text).unwrap();
    }
    let committed = fs::read_to_string(file).unwrap();
    for (now, committed) in text.lines().zip(committed.lines()) {
        assert_eq!(now, committed);
    }
    assert_eq!(text.lines().count(), committed.lines().count());
}

#[test]
fn all_figures_and_their_values_are_in_the_page() {
    for text in [ALLOC, CHURN] {
        let (page, value) = (page_of(&[text]), json_of(text));
        assert!(charts(&page) >= 4);
        for figure in value["data"]["figures"].as_array().unwrap() {
            let cell = format!("<td>{}</td>", figure["name"].as_str().unwrap());
            assert!(page.contains(&cell), "{cell}");
            let numbers = [&figure["value"], &figure["time"]["median_us"], &figure["base"]["max_us"]];
            for number in numbers.into_iter().filter(|number| !number.is_null()) {
                assert!(page.contains(&format!("<data value=\"{number}\">")), "{number}");
            }
        }
    }
}

#[test]
fn the_page_has_the_results_and_refers_to_nothing_else() {
    let texts = [ALLOC, STRESS, PAIRS, RANDOM];
    let page = page_of(&texts);
    assert!(charts(&page) > 10);
    let originals: Vec<Value> = texts.into_iter().map(json_of).collect();
    assert_eq!(embedded(&page), originals);
    let links: Vec<_> = page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    assert!(links.iter().all(|link| *link == "http://www.w3.org/2000/svg"), "{links:?}");
    for part in ["<link", "src=", "@import", "url("] {
        assert!(!page.contains(part), "{part}");
    }
}

/// A suite of the CPU with names that are dangerous in HTML.
fn suite() -> Value {
    let mut value = json_of(ALLOC);
    value["device"] = json!({"backend": "cpu", "name": "</script><script>alert(1)</script>"});
    let point = |x: u32, factor: u32| json!({"x": x, "median": factor * 10, "min": factor * 9, "max": factor * 12, "floor": 8, "failed": 0});
    let series = |contender: &str, factor: u32, over: &str| {
        json!({
        "contender": contender, "operation": "alloc", "over": over, "fixed": {"bytes": 64}, "unit": "us",
        "points": [point(1, factor), point(65_536, factor)]})
    };
    value["data"] = json!({
        "rounds": 3, "figures": [], "suite": "quick", "notes": ["<b>a note</b>"],
        "series": [series("heap", 2, "threads"), series("CUDA malloc", 9000, "threads"), series("heap", 2, "bytes")],
        "latency": [{"name": "heap alloc", "contender": "heap", "operation": "alloc", "situation": "<i>", "unit": "ns",
            "calls": 10, "p50": 5, "p99": 7, "p999": 8, "max": 9,
            "histogram": [{"upto": 5, "calls": 9}, {"upto": 6, "calls": 0}, {"upto": 9, "calls": 1}]}],
        "collections": [{"name": "Vec push", "heap_us": 1.5, "cuda_malloc_us": 300.0, "ratio": 200.0}],
    });
    value
}

#[test]
fn a_suite_has_ratios_times_latencies_and_collections() {
    let value = suite();
    let page = page_of(&[&value.to_string()]);
    charts(&page);
    for part in
        ["Ratio to the floor", "Times", "Latency of single calls", "Vec push", "p99.9 8 ns", "Suite: quick"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("64 B each, without CUDA malloc"), "a close-up of the heap");
    assert_eq!(
        parts(&page, "<h3>alloc over threads", "</h3>").len(),
        4,
        "close-up and all, as ratio and as time"
    );
    assert!(page.find("Ratio to the floor") < page.find("<h2>Times"), "the ratios come first");
    assert!(page.contains("No GPU."), "the CPU is none");
}

/// Names of figures and collections are drawn as text of SVG.
#[test]
fn hostile_names_are_escaped() {
    const NAME: &str = "</text><script>alert(1)</script>&\u{1}";
    let mut value = suite();
    value["title"] = NAME.into();
    value["data"]["collections"][0]["name"] = NAME.into();
    value["data"]["figures"] = json!([{"name": NAME, "threads": 1, "time": null, "against": NAME, "base": null,
        "value": 2.0, "unit": "x", "holds": "at_most", "bar": 3.0, "passed": true}]);
    let page = page_of(&[&value.to_string()]);
    charts(&page);
    for part in ["<script>alert", "<b>a note", "<i>"] {
        assert!(!page.contains(part), "{part}");
    }
    let drawn = parts(&page, "<text", "</text>");
    let hostile = drawn.iter().filter(|text| text.contains("&lt;/text&gt;&lt;script&gt;alert(1)"));
    assert_eq!(hostile.count(), 2, "both names are drawn: {drawn:?}");
    assert_eq!(embedded(&page), [value]);
}

#[test]
fn points_with_failed_operations_are_left_out_and_named() {
    let mut value = suite();
    value["data"]["series"][0]["points"][0]["failed"] = 1234.into();
    let page = page_of(&[&value.to_string()]);
    charts(&page);
    let note = "heap: 1 point left out, 1,234 operations failed";
    assert_eq!(page.matches(note).count(), 4, "close-up and all, as ratio and as time");
    let marks = |page: &str| page.matches("a4 4 0 1 0 8 0a").count();
    assert_eq!(marks(&page) + 4, marks(&page_of(&[&suite().to_string()])));
}

#[test]
fn few_threads_are_shaded_on_a_gpu() {
    let cpu = suite();
    let mut gpu = cpu.clone();
    gpu["device"]["backend"] = "cuda".into();
    let [cpu, gpu] = [cpu, gpu].map(|value| page_of(&[&value.to_string()]));
    let shaded = |page: &str| {
        let charts = parts(page, "<svg", "</svg>");
        charts.iter().filter(|chart| chart.contains("<rect") && chart.contains("over threads")).count()
    };
    assert_eq!((shaded(&cpu), shaded(&gpu)), (0, 2), "the ratios over threads: close-up and all");
    assert!(gpu.contains("mostly that of the launch") && !cpu.contains("mostly that of the launch"));
}

#[test]
fn empty_results_have_a_page() {
    let mut value = json_of(ALLOC);
    value["data"] = json!({"rounds": 1});
    let page = page_of(&[&value.to_string()]);
    assert_eq!(charts(&page), 0);
    assert_eq!(parts(&page, "<h2>", "</h2>"), ["<h2>Method and origin</h2>"]);
}
