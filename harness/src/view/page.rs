//! A report of results: one HTML file without scripts, for light and dark pages, phones and print.
//!
//! The charts are SVG, each with its values as a table. The JSON of the results is embedded. Kinds
//! of results are lists of [`Section`]s: those of `bench` and those of `runs`.

use super::chart::{self, Card, Row, Value};
use super::section::{Section, rows_cards};
use super::{bench, runs, svg};
use crate::report::compare::{Change, Comparison, FEWEST_ROUNDS, Verdict};
use crate::report::human::{BinaryBytes, Count, Unit, printable};
use crate::report::results::{Compilers, Host, Origin};
use crate::report::results::{Data, Results};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The page of these results, with what changed since older ones.
pub fn page(results: &[Results], changes: Option<&Comparison>) -> String {
    let title = match results {
        [one] => format!("{}: {}, {}", one.title(), one.device(), one.origin.date),
        _ => format!("warpheap: {} results", results.len()),
    };
    let colours = [COLOURS, svg::RULES, chart::RULES].concat();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                // Print is light.
                style { (PreEscaped(STYLE)) (PreEscaped(svg::themed(&colours, "screen and (prefers-color-scheme:dark)"))) }
            }
            body {
                @if let Some(changes) = changes { (changed(changes)) }
                @for one in results { (of_results(one)) }
                footer { p { "Written by warpheap " (env!("CARGO_PKG_VERSION")) ". The JSON of the results is in the " code { "script" } " elements of this file." } }
                // HTML does not interpret JSON: `<` occurs only in its strings, where it can be
                // escaped.
                @for one in results { script type="application/json" class="results" { (PreEscaped(one.text.replace('<', "\\u003c"))) } }
            }
        }
    };
    printable(&page.into_string())
}

/// All charts of a result with their names, in the order of the page.
pub fn charts(one: &Results) -> Vec<(String, Card)> {
    let named = |section: Section| {
        let named = move |card: Card| {
            // A picture is without the heading of the page.
            let note = format!("{}. {}", one.device(), card.note);
            (format!("{}: {}", section.group, card.title), Card { note, ..card })
        };
        section.cards.into_iter().map(named)
    };
    sections(one).into_iter().flat_map(named).collect()
}

fn sections(one: &Results) -> Vec<Section> {
    match &one.data {
        Data::Bench(bench) => bench::sections(bench, one.is_simulated()),
        Data::Stress(stress) => vec![runs::stress(stress)],
        Data::Pools(pools) => vec![runs::pools(pools)],
    }
}

/// All about one result: notices, sections, notes, and its origin.
fn of_results(one: &Results) -> Markup {
    let (suite, notes, left_out, what) = match &one.data {
        Data::Bench(bench) => (bench.suite, &bench.notes[..], &bench.bench.left_out[..], THREADS),
        Data::Stress(_) => (None, &[][..], &[][..], THREADS),
        Data::Pools(pools) => (
            None,
            &[][..],
            &pools.left_out[..],
            "The memory of the device is that of the program on the CPU.",
        ),
    };
    html! {
        main {
            h1 { (one.title()) ": " (one.device()) }
            p.dim { (summary(&one.origin)) }
            @if one.is_simulated() {
                p.notice role="note" { strong { "No GPU." } " " (what) " The times say nothing about a GPU." }
            }
            @if let Some(suite) = suite { p.dim { "Suite: " (suite.name()) } }
            @for what in one.wrong() { p.notice { strong { "Wrong: " } (what) } }
            @for section in sections(one) { (section) }
            @if !(notes.is_empty() && left_out.is_empty()) {
                h2 { "Notes" }
                ul.dim {
                    @for note in notes { li { (note) } }
                    @for what in left_out { li { "Left out: " (what) } }
                }
            }
            (origin(one))
        }
    }
}

const THREADS: &str = "The CPU simulates the threads of the kernels.";

/// What changed since older results, as a chart and a table.
fn changed(comparison: &Comparison) -> Markup {
    /// The most rows of the chart. The table has all measurements.
    const MOST: usize = 20;
    let rows: Vec<Row> = comparison.changed().into_iter().take(MOST).filter_map(changed_row).collect();
    let note = "newer over older value, the worst first; the line is no change";
    let cards = rows_cards("Changes", note, Unit::Ratio, &rows, &[]);
    let (commit, date) = &comparison.old;
    html! {
        section {
            h1 { "Changes since " (comparison.file) }
            p { "Older results: commit " (commit) ", " (date) ". " (comparison.summary()) "." }
            @for one in &comparison.differences {
                p.notice { strong { "Different " (one.what) ": " } (one.old) " before, " (one.new) " now." }
            }
            @for what in &comparison.wrong { p.notice { strong { "Now wrong: " } (what) } }
            p.dim {
                "A measurement changed if the ranges of its rounds do not overlap and its median differs by more than "
                (format!("{:.1} %", 100.0 * comparison.threshold)) "; it is also worse if more operations failed. "
                "Not judged are floors, the driver's allocators, and times of fewer than " (FEWEST_ROUNDS) " rounds. "
                @if comparison.only_new > 0 { (comparison.only_new) " newer measurements have no counterpart." }
            }
            @if !comparison.only_old.is_empty() {
                details {
                    summary { (comparison.only_old.len()) " older measurements have no counterpart" }
                    ul { @for name in &comparison.only_old { li { (name) } } }
                }
            }
            div.cards { @for card in cards { (card) } }
            details {
                summary { "Values: all compared measurements" }
                div.wide {
                    table {
                        thead { tr { th { "measurement" } th.number { "before" } th.number { "after" } th.number { "change" } th { "verdict" } } }
                        tbody {
                            @for change in &comparison.changes {
                                @let [old, new] = change.texts();
                                tr {
                                    td { (change.new.name) }
                                    td.number { data value=(change.old.value) { (old) } }
                                    td.number { data value=(change.new.value) { (new) } }
                                    td.number { (change.percent()) }
                                    td { (change.word()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn changed_row(change: &Change) -> Option<Row> {
    /// Styles of a value that became worse (red), and of one that became better (green).
    const WORSE: usize = 7;
    const BETTER: usize = 2;
    let (value, old) = (change.ratio()?, change.old.value);
    let style = if change.verdict == Verdict::Worse { WORSE } else { BETTER };
    let range = (change.new.range.0 / old, change.new.range.1 / old);
    Some(Row {
        name: change.new.name.clone(),
        dots: vec![(style, Value { value, range })],
        target: Some(1.0),
        text: match change.has_more_failures() {
            true => change.word().into(),
            false => format!("{} {}", change.percent(), change.word()),
        },
        is_marked: change.is_worse(),
    })
}

/// The date, the program and the driver in one line.
fn summary(origin: &Origin) -> String {
    let driver = origin.driver.as_ref().map(|version| format!(", driver {version}")).unwrap_or_default();
    format!("{}, warpheap {}, commit {}{driver}", origin.date, origin.version, origin.commit)
}

/// The description of the measurement.
fn method(data: &Data) -> String {
    match data {
        Data::Bench(bench) => format!(
            "Each time is the median of at most {} rounds after a warm-up, by events of the stream; a line through \
             a marker extends from the fastest to the slowest round. A floor is a kernel without the allocator, \
             measured in the same run. It stores or loads a word for each operation, but not at the addresses \
             that an allocator would return, so its memory traffic can differ. Axes are logarithmic.",
            Count(bench.bench.rounds.into())
        ),
        Data::Stress(_) => {
            "A rate counts pairs of an allocation and a free per second in kernels, including all checks \
             of each pair. The command bench measures the allocators alone."
                .into()
        }
        Data::Pools(pools) => format!(
            "Times are of the host. A pair is an allocation and its free: the median of {} rounds; a line \
             through a marker extends from the fastest to the slowest round. Axes are logarithmic.",
            Count(pools.rounds.into())
        ),
    }
}

/// The device and its size.
fn device(one: &Results) -> String {
    let Some(device) = &one.origin.device else { return one.device().to_owned() };
    let some = |number: u64| (number > 0).then_some(number);
    let parts = [
        Some(device.name.clone()),
        device.compute_capability.as_ref().map(|cc| format!("compute capability {cc}")),
        some(device.multiprocessors.into()).map(|count| format!("{} multiprocessors", Count(count))),
        some(device.memory_bytes).map(|size| BinaryBytes(size).to_string()),
        some(device.l2_bytes).map(|size| format!("{} of L2", BinaryBytes(size))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The method and the origin of the results.
fn origin(one: &Results) -> Markup {
    let Origin { version, commit, date, command, compiler, host, driver, kernels, .. } = &one.origin;
    let machine = |Host { target, cpu, cpu_threads }: &Host| {
        format!("{}, {} threads, {target}", cpu.as_deref().unwrap_or("none"), Count(*cpu_threads as u64))
    };
    let compilers = |of: &Compilers| format!("host: {}; kernels: {}", of.host, of.device);
    let rows = [
        ("device", Some(device(one))),
        ("driver", driver.clone()),
        ("kernels", kernels.clone()),
        ("machine", host.as_ref().map(machine)),
        ("program", Some(format!("warpheap {version}, commit {commit}"))),
        ("compilers", compiler.as_ref().map(compilers)),
        ("date", Some(date.clone())),
    ];
    html! {
        h2 { "Method and origin" }
        p { (method(&one.data)) }
        dl {
            @for (name, text) in rows { dt { (name) } dd { (text.as_deref().unwrap_or("none")) } }
            dt { "command" } dd { code { (command.join(" ")) } }
        }
    }
}

const COLOURS: &str = "
:root{color-scheme:light dark}
body{background:$page;color:$ink}h2,th,td{border-color:$line}.notice,section+main,main+main{border-color:$ink}
.dim,figcaption p,footer,dt{color:$dim}
";

const STYLE: &str = "
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:0 1rem 3rem;
font:1rem/1.5 system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:1.5rem 0 .5rem}
h2{font-size:1.2rem;margin:2rem 0 .25rem;border-top:1px solid;padding-top:1rem}
h3{font-size:1rem;margin:0}
p{margin:.25rem 0;max-width:48rem}
.dim,figcaption p,footer{font-size:.875rem}
.notice{border:2px solid;padding:.5rem .75rem;margin:.75rem 0;max-width:48rem}
.cards{columns:23rem;column-gap:2rem;margin:1rem 0}
figure{margin:0 0 1.5rem;min-width:0;break-inside:avoid}
details details{margin-left:1rem}
.chart{display:block;width:100%;max-width:600px;height:auto}
.chart.sample{width:2.25rem;flex:none}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.25rem 0;padding:0;font-size:.875rem}
.legend li{display:flex;align-items:center;gap:.4rem;overflow-wrap:normal}
details{margin:.5rem 0}
summary{cursor:pointer;font-size:.875rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.8125rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.15rem .75rem .15rem 0;border-bottom:1px solid;overflow-wrap:normal}
th{font-weight:600}
td.number,th.number{text-align:right;white-space:nowrap}
section+main,main+main{border-top:3px solid;margin-top:3rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.875rem;margin:.5rem 0}
dd{margin:0;min-width:0}
code{font:.8125rem ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}
@media print{
body{max-width:none;padding:0;font-size:.75rem}
.cards{columns:2}
tr,.notice{break-inside:avoid}
h2,h3{break-after:avoid}
.wide{overflow:visible}
details::details-content{content-visibility:visible;display:block;height:auto}
table{font-size:.5rem}
th,td{padding-right:.4rem}
}
";
