//! Pools of the host: the time of a pair and of random allocations, for each pool.

use super::origin::{remarks, wrong};
use super::parts::{rows_cards, table};
use crate::report::human::Unit;
use crate::view::chart::Error;
use crate::view::chart::picture::Card;
use crate::view::chart::rows::{Dot, Row};
use maud::{Markup, html};
use warpheap_harness::pool_tools::bench::{Comparison, PairFigure, PoolBenchReport, RandomFigure};

/// The driver's memory, which pools are compared with.
const BASE: usize = 5;

/// All figures.
pub fn section(pools: &PoolBenchReport) -> Result<Markup, Error> {
    let judged: Vec<_> = pools.judged().map(|(_, _, judged)| judged).collect();
    Ok(html! {
        (wrong(&pools.wrong))
        h2 { "Times of pools" }
        div.rows { @for card in cards(pools)? { (card) } }
        (table("Values: pairs", &pools.pairs, &PAIRS))
        (table("Values: random allocations", &pools.random, &RANDOM))
        (table("Values: targets", &judged, &BARS))
        (remarks(&[], &pools.left_out))
    })
}

/// The times of pairs and of random allocations.
pub fn cards(pools: &PoolBenchReport) -> Result<Vec<Card>, Error> {
    let mut groups: Vec<(String, Vec<Row>)> = Vec::new();
    let pairs = pools.pairs.iter().map(|pair| (title(pair), pair_row(pair)));
    for (title, row) in
        pairs.chain(pools.random.iter().map(|random| (random.name.clone(), random_row(random))))
    {
        match groups.iter_mut().find(|(name, _)| *name == title) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((title, vec![row])),
        }
    }
    let note = "time of a pair or a call; speedup over the driver's memory; ✗ a target is missed";
    let cards = groups.iter().map(|(title, rows)| rows_cards(title, note, Unit::Nanos, rows, &Vec::new()));
    Ok(cards.collect::<Result<Vec<_>, _>>()?.concat())
}

const PAIRS: [(&str, &str); 10] = [
    ("figure", "/name"),
    ("pool", "/pool"),
    ("host threads", "/threads"),
    ("pairs", "/pairs"),
    ("median (ns)", "/ns/median"),
    ("fastest", "/ns/min"),
    ("slowest", "/ns/max"),
    ("slowest thread, median (ns)", "/slowest_ns/median"),
    ("× driver", "/driver_ratio"),
    ("× driver's pool", "/driver_pool_ratio"),
];
const RANDOM: [(&str, &str); 10] = [
    ("figure", "/name"),
    ("pool", "/pool"),
    ("allocations", "/allocations"),
    ("seconds", "/seconds"),
    ("a call (ns)", "/call_ns"),
    ("peak live bytes", "/peak_live_bytes"),
    ("peak reserved bytes", "/peak_reserved_bytes"),
    ("failed", "/failed_allocations"),
    ("× driver", "/driver_ratio"),
    ("× driver's pool", "/driver_pool_ratio"),
];
const BARS: [(&str, &str); 6] = [
    ("what", "/what"),
    ("value", "/value"),
    ("unit", "/unit"),
    ("holds", "/holds"),
    ("target", "/bar"),
    ("met", "/met"),
];

fn title(pair: &PairFigure) -> String {
    let threads =
        if pair.threads == 1 { "one host thread".into() } else { format!("{} host threads", pair.threads) };
    format!("{}, {threads}", pair.name)
}

fn pair_row(pair: &PairFigure) -> Row {
    let dot = Dot { style: style(&pair.pool), value: pair.ns.median, range: (pair.ns.min, pair.ns.max) };
    row(&pair.pool, dot, &pair.comparison)
}

fn random_row(random: &RandomFigure) -> Row {
    let value = random.call_ns;
    row(&random.pool, Dot { style: style(&random.pool), value, range: (value, value) }, &random.comparison)
}

fn style(pool: &str) -> usize {
    if pool.starts_with("driver") { BASE } else { 0 }
}

fn row(pool: &str, dot: Dot, comparison: &Comparison) -> Row {
    let is_missed = comparison.bars.iter().any(|bar| !bar.met);
    let ratio =
        comparison.driver_ratio.map_or_else(String::new, |ratio| format!(", {}", Unit::Ratio.text(ratio)));
    let met = if is_missed { " ✗" } else { "" };
    Row {
        name: pool.to_owned(),
        dots: vec![dot],
        target: None,
        text: format!("{}{ratio}{met}", Unit::Nanos.text(dot.value)),
        is_marked: is_missed,
    }
}
