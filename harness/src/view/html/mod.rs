//! A report of results: one HTML file without scripts, for light and dark pages, phones and print.
//!
//! The charts are SVG, each with its values as a table. The JSON of the results is embedded.
//! `parts` has the elements of all sections, `origin` tells how the results were made, `changes`
//! compares them with older ones; the other modules draw one kind of data each.

mod changes;
mod figures;
mod latency;
mod load;
mod origin;
mod parts;
mod pools;
mod series;
mod stress;
mod style;
#[cfg(test)]
mod tests;

use super::chart::Error;
use super::chart::picture::Card;
use crate::report::compare::Comparison;
use crate::report::human::printable;
use crate::report::results::{Data, Results};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use warpheap_harness::bench::suite::SuiteReport;

/// The page of these results, with what changed since older ones.
pub fn page(results: &[Results], changes: Option<&Comparison>) -> Result<String, Error> {
    let title = match results {
        [one] => format!("{}: {}, {}", one.title(), one.device(), one.origin.date),
        _ => format!("warpheap: {} results", results.len()),
    };
    let sections = results.iter().map(section).collect::<Result<Vec<_>, _>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style::sheet())) }
            }
            body {
                @if let Some(changes) = changes { (changes::section(changes)?) }
                @for section in &sections { (section) }
                footer { p { "Written by warpheap " (env!("CARGO_PKG_VERSION")) ". The JSON of the results is in the " code { "script" } " elements of this file." } }
                @for one in results { (embedded(&one.text)) }
            }
        }
    };
    Ok(printable(&page.into_string()))
}

/// JSON that HTML does not interpret: `<` occurs only in its strings, where it can be escaped.
fn embedded(json: &str) -> Markup {
    let text = json.replace('<', "\\u003c");
    html! { script type="application/json" class="results" { (PreEscaped(text)) } }
}

fn section(one: &Results) -> Result<Markup, Error> {
    let body = match &one.data {
        Data::Bench(bench) => self::bench(one, bench)?,
        Data::Stress(stress) => stress::section(stress)?,
        Data::Pools(pools) => pools::section(pools)?,
    };
    Ok(html! {
        main {
            h1 { (one.title()) ": " (one.device()) }
            p.dim { (origin::line(one)) }
            @if one.is_simulated() { (origin::simulated(one)) }
            (body)
            (origin::section(one))
        }
    })
}

fn bench(one: &Results, suite: &SuiteReport) -> Result<Markup, Error> {
    let bench = &suite.bench;
    Ok(html! {
        @if let Some(suite) = suite.suite { p.dim { "Suite: " (suite.name()) } }
        (origin::wrong(&bench.wrong))
        (figures::section(bench)?)
        (series::section(one, suite)?)
        (latency::section(suite)?)
        (figures::collections(suite)?)
        (load::section(suite)?)
        (figures::times_section(bench)?)
        (origin::remarks(&suite.notes, &bench.left_out))
    })
}

/// All charts of a result with their names, in the order of the page.
pub fn charts(one: &Results) -> Result<Vec<(String, Card)>, Error> {
    let groups = match &one.data {
        Data::Bench(bench) => vec![
            ("figure", figures::value_cards(&bench.bench)?),
            ("time of figure", figures::time_cards(&bench.bench)?),
            ("ratio", series::cards(one, bench, series::View::Ratio)?),
            ("time", series::cards(one, bench, series::View::Time)?),
            ("latency", latency::cards(bench)?),
            ("collections", figures::collection_cards(bench)?),
            ("load", load::load_cards(bench)?),
            ("drift", load::drift_cards(bench)?),
        ],
        Data::Stress(stress) => vec![("stress", stress::cards(stress)?)],
        Data::Pools(pools) => vec![("pool", pools::cards(pools)?)],
    };
    let named = |(group, cards): (&'static str, Vec<Card>)| {
        cards.into_iter().map(move |card| {
            // A picture is without the heading of the page.
            let note = format!("{}. {}", one.device(), card.note);
            (format!("{group}: {}", card.title), Card { note, ..card })
        })
    };
    Ok(groups.into_iter().flat_map(named).collect())
}
