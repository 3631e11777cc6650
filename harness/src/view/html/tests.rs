use super::page;
use crate::report::compare::Old;
use crate::report::results::Results;
use serde_json::{Value, json};

const ALLOC: &str = include_str!("../../../../results/h200-2026-11-25/bench-heap-alloc.json");
const CHURN: &str = include_str!("../../../../results/h200-2026-11-25/bench-heap-churn.json");
const STRESS: &str = include_str!("../../../../results/h200-2026-11-25/stress-default.json");
const PLANT: &str = include_str!("../../../../results/h200-2026-11-25/plant-overlap-cuda.json");
const PAIRS: &str = include_str!("../../../../results/h200-2026-11-23/pool-pair.json");
const RANDOM: &str = include_str!("../../../../results/h200-2026-11-23/pool-random-to-1-MiB.json");

fn read(text: &str) -> Results {
    Results::parse(text.into()).unwrap()
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn page_of(texts: &[&str]) -> String {
    page(&texts.iter().map(|text| read(text)).collect::<Vec<_>>(), None).unwrap()
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

#[test]
fn the_origin_and_the_method_are_in_the_page() {
    let page = page_of(&[ALLOC]);
    let commit = read(ALLOC).origin.commit;
    for part in ["NVIDIA H200", &commit, "13.0", "sm_80", "132 multiprocessors", "rustc 1.96.0", "median of"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("warpheap bench --figure heap alloc --json bench-heap-alloc.json"));
    assert!(!page.contains("No GPU."), "an H200 is one");
}

#[test]
fn stress_runs_have_their_ends_checks_and_findings() {
    let page = page_of(&[STRESS, PLANT]);
    for part in ["bump: clean", "freelist: clean", "heap: clean", "What was checked", "To repeat:", "overlap"]
    {
        assert!(page.contains(part), "{part}");
    }
    let runs = json_of(PLANT)["data"]["runs"].clone();
    let first = runs[0]["report"]["findings"][0]["message"].as_str().unwrap();
    assert!(page.contains(&maud::html! { (first) }.into_string()), "{first}");
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

#[test]
fn results_of_another_program_have_its_title() {
    let mut value = suite();
    assert!(page_of(&[&value.to_string()]).contains("<h1>warpheap bench: "));
    value["title"] = json!("Lists <in> kernels");
    let page = page_of(&[&value.to_string()]);
    assert!(
        page.contains("<title>Lists &lt;in&gt; kernels: ") && page.contains("<h1>Lists &lt;in&gt; kernels: ")
    );
}

#[test]
fn hostile_names_are_escaped() {
    let value = suite();
    let page = page_of(&[&value.to_string()]);
    for part in ["<script>alert", "<b>a note", "<i>"] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(embedded(&page), [value]);
}

/// Names of figures and collections are drawn as text of SVG.
#[test]
fn hostile_names_in_charts_are_escaped() {
    const NAME: &str = "</text><script>alert(1)</script>&\u{1}";
    let mut value = suite();
    value["data"]["collections"][0]["name"] = NAME.into();
    value["data"]["figures"] = json!([{"name": NAME, "threads": 1, "time": null, "against": NAME, "base": null,
        "value": 2.0, "unit": "x", "holds": "at_most", "bar": 3.0, "passed": true}]);
    let page = page_of(&[&value.to_string()]);
    charts(&page);
    assert!(!page.contains("<script>alert"), "it is escaped");
    let drawn = parts(&page, "<text", "</text>");
    let hostile = drawn.iter().filter(|text| text.contains("&lt;/text&gt;&lt;script&gt;alert(1)"));
    assert_eq!(hostile.count(), 2, "both names are drawn: {drawn:?}");
    assert_eq!(embedded(&page), [value]);
}

/// The values of a chart of rows with the name `title`, as texts.
fn texts(page: &str, title: &str) -> Vec<String> {
    let chart = parts(page, "<svg", "</svg>").into_iter().find(|chart| chart.contains(title)).unwrap();
    let texts = parts(chart, "<text", "</text>").into_iter();
    texts.map(|text| text.split_once('>').unwrap().1.replace("</text>", "").trim().to_owned()).collect()
}

#[test]
fn a_figure_without_a_value_is_not_measured() {
    let mut value = json_of(ALLOC);
    value["data"]["figures"][0]["value"] = Value::Null;
    let (page, name) =
        (page_of(&[&value.to_string()]), value["data"]["figures"][0]["name"].as_str().unwrap());
    charts(&page);
    assert!(page.contains(&format!("<td>{name}</td>")), "{name}");
    assert!(texts(&page, "<title>heap alloc").contains(&"not measured".to_owned()), "{name}");
}

#[test]
fn points_with_failed_operations_are_left_out_and_named() {
    let mut value = suite();
    value["data"]["series"][0]["points"][0]["failed"] = 1234.into();
    let page = page_of(&[&value.to_string()]);
    charts(&page);
    let note = "heap: 1 point left out, 1,234 operations failed";
    assert_eq!(page.matches(note).count(), 4, "close-up and all, as ratio and as time");
    let circles = |page: &str| page.matches("<circle").count();
    assert_eq!(circles(&page) + 4, circles(&page_of(&[&suite().to_string()])));
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
fn latencies_with_other_numbers_of_threads_have_other_charts() {
    let mut value = suite();
    let with = |contender: &str, threads: u64, failed: u64| {
        let mut latency = value["data"]["latency"][0].clone();
        (latency["contender"], latency["situation"]) = (contender.into(), "one size".into());
        (latency["threads"], latency["bytes"], latency["failed"]) =
            (threads.into(), 64.into(), failed.into());
        latency
    };
    let all = [with("heap", 1 << 20, 0), with("heap", 1 << 16, 0), with("CUDA malloc", 1 << 16, 3)];
    value["data"]["latency"] = json!(all);
    let page = page_of(&[&value.to_string()]);
    for part in [
        "<h3>alloc: one size, 2²⁰ threads</h3><p>64 B each. heap: p50 5 ns, p99.9 8 ns, longest 9 ns</p>",
        "<h3>alloc: one size, 2¹⁶ threads</h3><p>64 B each. heap: p50 5 ns, p99.9 8 ns, longest 9 ns; CUDA malloc: p50 5 ns, p99.9 8 ns, longest 9 ns, 3 calls failed</p>",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn changes_are_a_section_of_the_page() {
    let mut old = json_of(ALLOC);
    old["commit"] = "0ld".into();
    for (name, scale) in [("median_us", 0.5), ("min_us", 0.5), ("max_us", 0.5)] {
        let time = &mut old["data"]["figures"][0]["time"][name];
        *time = json!(time.as_f64().unwrap() * scale);
    }
    let old = Old { file: "old.json".into(), results: read(&old.to_string()), threshold: 0.1 };
    let new = [read(ALLOC)];
    let comparison = old.compare(&new).unwrap();
    let page = page(&new, Some(&comparison)).unwrap();
    charts(&page);
    for part in ["Changes since old.json", "commit 0ld", "31 measurements: 1 worse", "+100 % WORSE"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn empty_results_have_a_page() {
    let mut value = json_of(ALLOC);
    value["data"] = json!({"rounds": 1});
    assert_eq!(charts(&page_of(&[&value.to_string()])), 0);
}
