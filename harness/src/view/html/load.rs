//! A heap over its load, and drifts: times beside the shares of failed allocations.

use super::parts::{legend, rows_cards, table};
use crate::report::human::{Unit, short};
use crate::view::chart::Error;
use crate::view::chart::picture::Card;
use crate::view::chart::rows::{Dot, Row};
use maud::{Markup, html};
use warpheap_harness::bench::suite::{Drift, HeapLoad, SuiteReport};

/// Styles of the main value, of one beside it, and of the floor.
const VALUE: usize = 0;
const OTHER: usize = 1;
const FLOOR: usize = 5;

/// All charts and tables. Empty without such results.
pub fn section(bench: &SuiteReport) -> Result<Markup, Error> {
    Ok(html! {
        @if !bench.load.is_empty() {
            h2 { "A heap over its load" }
            p { "The load is the share of the blocks that fit. Times are per thread, failed allocations included; their share is beside the times. A fill allocates from a new heap up to the load. In a turn each thread frees one of the live blocks and allocates another; the line is from the fastest to the slowest kernel. The floor reads and writes as a turn does, without the allocator." }
            div.rows { @for card in load_cards(bench)? { (card) } }
            (table("Values: heaps over their load", &bench.load, &LOAD))
        }
        @if !bench.drift.is_empty() {
            h2 { "Drift from size to size" }
            p { "A heap is filled with one size after the other, and a tenth of its blocks survives each. An allocation failed wrongly if there was memory for it. What no kernel was granted although it fits beside the survivors is the rest. Zero is not on the logarithmic axis." }
            div.rows { @for card in drift_cards(bench)? { (card) } }
            (table("Values: drift", &bench.drift, &DRIFT))
        }
    })
}

const LOAD: [(&str, &str); 19] = [
    ("heap (bytes)", "/heap_bytes"),
    ("smallest", "/min_bytes"),
    ("largest", "/max_bytes"),
    ("load (%)", "/percent"),
    ("threads", "/threads"),
    ("fill: first kernel (ns)", "/fill/first_ns"),
    ("all", "/fill/mean_ns"),
    ("requests", "/fill/requests"),
    ("failed", "/fill/failed"),
    ("%", "/fill/failed_percent"),
    ("turn: first (ns)", "/turn/first_ns"),
    ("median", "/turn/median_ns"),
    ("fastest", "/turn/min_ns"),
    ("slowest", "/turn/worst_ns"),
    ("requests", "/turn/requests"),
    ("failed", "/turn/failed"),
    ("%", "/turn/failed_percent"),
    ("contended", "/contended"),
    ("floor (ns)", "/floor_ns"),
];

const DRIFT: [(&str, &str); 18] = [
    ("heap (bytes)", "/heap_bytes"),
    ("survivors", "/survivors"),
    ("threads", "/threads"),
    ("size", "/bytes"),
    ("goal (bytes)", "/goal_bytes"),
    ("requests", "/requests"),
    ("granted", "/granted"),
    ("failed", "/failed"),
    ("a second kernel", "/served_again"),
    ("later kernels", "/served_later"),
    ("free blocks", "/free_blocks"),
    ("free slabs", "/free_slabs"),
    ("free runs", "/free_runs"),
    ("wrong", "/wrong"),
    ("%", "/wrong_percent"),
    ("contended", "/contended"),
    ("persistent (bytes)", "/persistent_bytes"),
    ("%", "/persistent_percent"),
];

/// The text beside a row.
const NOTE: &str = "time per thread (share of failed allocations)";

/// A card of fills and one of turns for each heap and range of sizes.
pub fn load_cards(bench: &SuiteReport) -> Result<Vec<Card>, Error> {
    let key = |load: &HeapLoad| (load.heap_bytes, load.min_bytes, load.max_bytes);
    let groups = bench.load.chunk_by(|a, b| key(a) == key(b));
    let cards = groups.map(|group| Ok([fills(group)?, turns(group)?].concat()));
    Ok(cards.collect::<Result<Vec<_>, Error>>()?.concat())
}

fn fills(group: &[HeapLoad]) -> Result<Vec<Card>, Error> {
    let dots = |load: &HeapLoad| vec![dot(OTHER, load.fill.first_ns), dot(VALUE, load.fill.mean_ns)];
    let row = |load: &HeapLoad| row(load, dots(load), load.fill.mean_ns, load.fill.failed_percent);
    let legend = legend([(VALUE, "all kernels"), (OTHER, "the first kernel")].into_iter())?;
    let rows: Vec<_> = group.iter().map(row).collect();
    rows_cards(&title("fill", &group[0]), NOTE, Unit::Nanos, &rows, &legend)
}

fn turns(group: &[HeapLoad]) -> Result<Vec<Card>, Error> {
    let range = |load: &HeapLoad| (load.turn.min_ns, load.turn.worst_ns);
    let turn = |load: &HeapLoad| Dot { range: range(load), ..dot(VALUE, load.turn.median_ns) };
    let dots = |load: &HeapLoad| vec![dot(FLOOR, load.floor_ns), dot(OTHER, load.turn.first_ns), turn(load)];
    let row = |load: &HeapLoad| row(load, dots(load), load.turn.median_ns, load.turn.failed_percent);
    let entries = [(VALUE, "the median turn"), (OTHER, "the first turn"), (FLOOR, "floor")];
    let legend = legend(entries.into_iter())?;
    let rows: Vec<_> = group.iter().map(row).collect();
    rows_cards(&title("turn", &group[0]), NOTE, Unit::Nanos, &rows, &legend)
}

fn dot(style: usize, value: f64) -> Dot {
    Dot { style, value, range: (value, value) }
}

/// The row of a load: its time, and the share of failed allocations, in bold unless it is 0.
fn row(load: &HeapLoad, dots: Vec<Dot>, nanos: f64, failed_percent: f64) -> Row {
    let name = format!("{} % of the blocks that fit", load.percent);
    let text = format!("{} ({} %)", Unit::Nanos.text(nanos), short(failed_percent));
    Row { name, dots, target: None, text, is_marked: failed_percent > 0.0 }
}

/// `turn of 16-512 B in 1 GiB`
fn title(what: &str, load: &HeapLoad) -> String {
    let (min, max) = (load.min_bytes, load.max_bytes);
    let range = if min == max { format!("{min} B") } else { format!("{min}-{max} B") };
    format!("{what} of {range} in {}", Unit::Bytes.text(load.heap_bytes as f64))
}

/// A card for each drift. None for a drift without failures.
pub fn drift_cards(bench: &SuiteReport) -> Result<Vec<Card>, Error> {
    let key = |drift: &Drift| (drift.heap_bytes, drift.survivors, drift.threads);
    let groups = bench.drift.chunk_by(|a, b| key(a) == key(b));
    Ok(groups.map(drift_card).collect::<Result<Vec<_>, _>>()?.concat())
}

fn drift_card(group: &[Drift]) -> Result<Vec<Card>, Error> {
    let row = |drift: &Drift| {
        let (wrong, rest) = (drift.wrong_percent, drift.persistent_percent);
        Row {
            name: drift.bytes.map_or("all sizes".into(), |bytes| Unit::Bytes.text(bytes.into())),
            dots: vec![dot(OTHER, rest), dot(VALUE, wrong)],
            target: None,
            text: format!("{} % / {} %", short(wrong), short(rest)),
            is_marked: wrong > 0.0,
        }
    };
    let rows: Vec<_> = group.iter().map(row).collect();
    let Drift { heap_bytes, survivors, threads, .. } = &group[0];
    let (heap, threads) = (Unit::Bytes.text(*heap_bytes as f64), Unit::Threads.tick((*threads).into()));
    let title = format!("{heap}, {} survives, {threads} threads", survivors.name());
    let note = "requests that failed wrongly / share of the goal that no kernel was granted";
    let legend = legend([(VALUE, "failed wrongly"), (OTHER, "never granted")].into_iter())?;
    rows_cards(&title, note, Unit::Percent, &rows, &legend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::{Data, Results};
    use serde_json::json;

    fn saved() -> Results {
        let load = |percent: u32, failed: f64| {
            json!({
                "heap_bytes": 1 << 30, "min_bytes": 16, "max_bytes": 512, "percent": percent, "fits": 1 << 22,
                "threads": 262_144, "contended": 0,
                "fill": {"first_ns": 0.5, "mean_ns": 0.75, "requests": 1000, "failed": 0, "failed_percent": 0.0},
                "turn": {"turns": 24, "first_ns": 3.0, "median_ns": 2.5, "min_ns": 2.0, "worst_ns": 4.0,
                         "requests": 400, "failed": 1, "failed_percent": failed},
                "floor_ns": 0.25
            })
        };
        let drift = |bytes: Option<u32>, wrong: f64, persistent: f64| {
            json!({"heap_bytes": 1 << 30, "survivors": "oldest", "threads": 16_384, "bytes": bytes, "goal_bytes": 1 << 30,
                   "requests": 100, "granted": 90, "failed": 10, "served_again": 1, "served_later": 1, "free_blocks": 2,
                   "free_slabs": 1, "free_runs": 0, "wrong": 3, "wrong_percent": wrong, "contended": 0,
                   "persistent_bytes": 64, "persistent_percent": persistent})
        };
        let value = json!({
            "schema": "warpheap-result/1", "kind": "bench", "version": "0.1.0", "commit": "0123",
            "date": "today", "data": {
                "rounds": 20, "load": [load(90, 0.0), load(98, 0.25)],
                "drift": [drift(Some(64), 0.0, 0.0), drift(Some(48), 12.5, 1.5), drift(None, 6.0, 0.75)],
            },
        });
        Results::parse(value.to_string()).unwrap()
    }

    #[test]
    fn times_have_their_failures_beside_them() {
        let one = saved();
        let Data::Bench(bench) = &one.data else { unreachable!("results of bench") };
        let cards = load_cards(bench).unwrap();
        let titles: Vec<_> = cards.iter().map(|card| &*card.title).collect();
        assert_eq!(titles, ["fill of 16-512 B in 1 GiB", "turn of 16-512 B in 1 GiB"]);
        let turns = cards[1].chart.svg.clone().into_string();
        for text in ["90 % of the blocks that fit", "2.5 ns (0 %)", "2.5 ns (0.25 %)"] {
            assert!(turns.contains(text), "no {text} in {turns}");
        }
        let [drift] = &*drift_cards(bench).unwrap() else { panic!("one card") };
        assert_eq!(drift.title, "1 GiB, the oldest tenth survives, 2¹⁴ threads");
        let drift = drift.chart.svg.clone().into_string();
        for text in ["48 B", "12.5 % / 1.5 %", "all sizes", "0 % / 0 %"] {
            assert!(drift.contains(text), "no {text} in {drift}");
        }
    }

    #[test]
    fn the_page_has_sections_only_for_what_was_measured() {
        let page = crate::view::html::page(&[saved()], None).unwrap();
        for text in ["A heap over its load", "Drift from size to size", "<data value=\"0.25\">"] {
            assert!(page.contains(text), "no {text}");
        }
        let without = saved().text.replace("\"load\":", "\"l\":").replace("\"drift\":", "\"d\":");
        let page = crate::view::html::page(&[Results::parse(without).unwrap()], None).unwrap();
        assert!(!page.contains("over its load</h2>") && !page.contains("Drift from"));
    }
}
