//! The guide names only options that exist, every exit status of `stress`, every pool and figure of
//! `warpheap pool`, and every field and demonstration of `warpheap map`.

#[path = "../../tests/repository/pages.rs"]
mod pages;

use pages::{page, words};

#[test]
fn options_in_the_guide_exist_and_exit_statuses_are_listed() {
    let help = |command: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpheap"))
            .args(command.split(' ').chain(["--help"]))
            .output()
            .expect("the program starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let options = help("stress") + &help("bench") + &help("doctor");
    let options = options + &help("pool replay") + &help("pool bench") + &help("pool show");
    let options = options + &help("pool export") + &help("map") + &help("report");
    let names = [
        "map",
        "bench",
        "stress",
        "results",
        "report",
        "replay",
        "global-allocator",
        "heap",
        "host-pools",
        "pool-command",
        "traces",
        "out-of-memory",
    ];
    for name in names.map(|name| format!("guide/{name}.md")) {
        let page = page(&name);
        for option in words(&page, "--") {
            assert!(options.contains(option), "{name} names {option}, which does not exist");
        }
    }
    let guide = page("guide/stress.md");
    for line in help("stress").lines().skip_while(|line| *line != "Exit status:").skip(1) {
        let status = line.split_whitespace().next().unwrap_or_default();
        assert!(guide.contains(&format!("| {status} |")), "status {status} is not in the guide");
    }
}

#[test]
fn the_guide_to_the_pool_command_has_every_pool_and_figure() {
    use warpheap_harness::pool_tools::{POOLS, bench};
    let page = page("guide/pool-command.md");
    for name in POOLS.iter().map(|kind| kind.name.to_owned()).chain(bench::names()) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not explained");
    }
}

/// The reports of heaps in the guide are output of the program; those of pools are of an example.
#[test]
fn the_guide_to_reports_has_the_output_of_the_program() {
    let page = page("guide/out-of-memory.md");
    let output = |command: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpheap"))
            .args(command.split(' '))
            .output()
            .expect("the program starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let heaps =
        ["fragmented", "leak"].map(|heap| output(&format!("map --demo {heap} --report --backend cpu")));
    let heaps = heaps.concat();
    // The threads of a heap get other blocks in each run, so its figures differ, and plurals.
    let words = |line: &str| {
        let is_word =
            |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit() || c == '[') && !word.contains("iB");
        line.split_whitespace()
            .filter(is_word)
            .map(|word| word.trim_end_matches(['s', ',']))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let has_words = |line: &str| heaps.lines().any(|other| words(other) == words(line));
    let blocks = page.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let mut reports = 0;
    for block in blocks.filter(|block| block.starts_with("report of a heap, ")) {
        assert!(block.lines().all(has_words), "not printed by the program:\n{block}\nbut:\n{heaps}");
        reports += 1;
    }
    assert_eq!(reports, 2);
}

#[test]
fn the_guide_to_maps_has_every_field_and_demonstration() {
    use serde_json::Value;
    let page = page("guide/map.md");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpheap"))
        .args(["map", "--demo", "mixed", "--backend", "cpu", "--json", "-"])
        .output()
        .expect("the program starts");
    let map: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let objects = [&map]
        .into_iter()
        .chain(["parts", "spans"].iter().flat_map(|list| map[list].as_array().expect("a list").iter()));
    let fields: std::collections::BTreeSet<&String> =
        objects.flat_map(|object| object.as_object().expect("an object").keys()).collect();
    assert!(fields.len() > 18, "{fields:?}");
    for field in fields {
        assert!(page.contains(&format!("`{field}`")), "{field} is not explained");
    }
    for kind in ["run", "large", "free", "fresh", "unmapped", "unknown"] {
        assert!(page.contains(&format!("| `{kind}` |")), "{kind} is not explained");
    }
    for demo in ["fresh", "mixed", "fragmented", "full", "timeline", "leak"] {
        assert!(page.contains(&format!("`--demo {demo}`")), "{demo} is not explained");
    }
    let picture = self::page("guide/map-fragmented.svg");
    let document = roxmltree::Document::parse(&picture).expect("well-formed");
    let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    let largest = "largest range 48.00 KiB; fragmentation 99.6 %";
    assert!(texts.contains(&largest) && texts.contains(&"4096 B"), "{texts:?}");
    assert!(
        page.to_lowercase().contains(&largest.to_lowercase()),
        "the guide quotes the figures of its picture"
    );
    assert!(page.contains(map["schema"].as_str().expect("a schema")));
}
