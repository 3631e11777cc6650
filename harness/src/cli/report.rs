//! `warpheap report`: draws saved results, and compares them with older ones. Runs write their own
//! pages by the same functions.

use super::args::{CompareArgs, ReportArgs};
use super::console::Console;
use super::input::{name, read};
use super::parse::Target;
use super::results::write_target;
use super::status::{Failure, Status};
use crate::report::compare::{Change, Comparison, Difference, FEWEST_ROUNDS, Old};
use crate::report::results::{Data, ResultFile, Results};
use crate::report::table::Summary;
use crate::view::{Card, charts, page};
use serde::Serialize;
use std::fmt::Display;
use std::path::Path;

/// Draws and compares the files.
pub fn run(args: ReportArgs, console: &Console) -> Result<Status, Failure> {
    let results = args.files.iter().map(|path| saved(path)).collect::<Result<Vec<_>, _>>()?;
    let old = read_old(&args.compare)?;
    if let Some((target, name)) = args.svg.as_ref().zip(args.chart.as_deref()) {
        let picture = chart(&results, name)?.picture();
        write_target(target, "picture", console, |to| to.write_all(picture.as_bytes()))?;
    }
    finish(&results, args.html.as_ref(), old.as_ref(), console)
}

/// The chart with this name: the first one of the files.
fn chart(results: &[Results], name: &str) -> Result<Card, Failure> {
    let mut charts: Vec<_> = results.iter().flat_map(charts).collect();
    if let Some(place) = charts.iter().position(|(one, _)| one == name) {
        return Ok(charts.swap_remove(place).1);
    }
    let names: Vec<_> = charts.into_iter().map(|(one, _)| format!("  {one}")).collect();
    Err(Failure::usage(format_args!("there is no chart `{name}`; the charts are\n{}", names.join("\n"))))
}

/// Writes the page of a run and compares its results with older ones. Returns the worse of `status`
/// and that of the comparison.
pub fn report_run<T: Serialize + Into<Data>>(
    results: ResultFile<T>,
    status: Status,
    html: Option<&Target>,
    old: Option<&Old>,
    console: &Console,
) -> Result<Status, Failure> {
    if html.is_none() && old.is_none() {
        return Ok(status);
    }
    let results = Results::of(results).map_err(failed);
    match results.and_then(|results| finish(&[results], html, old, console)) {
        Ok(compared) => Ok(status.worse(compared)),
        Err(failure) => Err(Failure { status: status.worse(failure.status), ..failure }),
    }
}

/// The older results that a run of this kind is to be compared with, if any. Runs read them before
/// they measure.
pub fn old(args: &CompareArgs, kind: &str) -> Result<Option<Old>, Failure> {
    let old = read_old(args)?;
    old.iter().try_for_each(|old| old.check_kind(kind)).map_err(Failure::usage)?;
    Ok(old)
}

fn read_old(args: &CompareArgs) -> Result<Option<Old>, Failure> {
    let Some(path) = &args.against else { return Ok(None) };
    Ok(Some(Old { file: name(path), results: saved(path)?, threshold: args.threshold }))
}

fn finish(
    results: &[Results],
    html: Option<&Target>,
    old: Option<&Old>,
    console: &Console,
) -> Result<Status, Failure> {
    let comparison = old.map(|old| old.compare(results)).transpose().map_err(Failure::usage);
    // A run that cannot be compared still has its page.
    if let Some(target) = html {
        let text = page(results, comparison.as_ref().ok().and_then(Option::as_ref));
        write_target(target, "page", console, |to| to.write_all(text.as_bytes()))?;
    }
    Ok(match comparison? {
        Some(comparison) => {
            tell(&comparison, console);
            if comparison.is_worse() { Status::Fault } else { Status::Clean }
        }
        None => Status::Clean,
    })
}

/// The most names of a list. The page has all.
const MOST_NAMES: usize = 20;
const HEADINGS: [&str; 5] = ["measurement", "before", "after", "change", "verdict"];

fn tell(comparison: &Comparison, console: &Console) {
    let (commit, date) = &comparison.old;
    console.say(format_args!("\nagainst {} (commit {commit}, {date})", comparison.file));
    for Difference { what, old, new } in &comparison.differences {
        console.say(format_args!("different {what}: {old} before, {new} now"));
    }
    comparison.wrong.iter().for_each(|what| console.say(format_args!("NOW WRONG: {what}")));
    let changed = comparison.changed();
    if !changed.is_empty() {
        let mut table = Summary::new(&HEADINGS, console.is_terminal());
        changed.into_iter().for_each(|change| table.row(row(change)));
        console.say(format_args!("{}\n", table.render()));
    }
    let percent = 100.0 * comparison.threshold;
    console.say(format_args!("{} (beyond noise and {percent:.1} %)", comparison.summary()));
    list(&format!("fewer than {FEWEST_ROUNDS} rounds, so without a verdict"), &comparison.too_few(), console);
    let only_old: Vec<_> = comparison.only_old.iter().map(String::as_str).collect();
    list("only in the older results", &only_old, console);
    if comparison.only_new > 0 {
        console.say(format_args!("only in the newer results: {} measurements", comparison.only_new));
    }
}

/// Prints the names of measurements below what they have in common. Nothing without names.
fn list(what: &str, names: &[&str], console: &Console) {
    if names.is_empty() {
        return;
    }
    console.say(format_args!("{what}: {} measurements", names.len()));
    names.iter().take(MOST_NAMES).for_each(|name| console.say(format_args!("  {name}")));
    if names.len() > MOST_NAMES {
        console.say(format_args!("  and {} more, which are on the page of --html", names.len() - MOST_NAMES));
    }
}

fn row(change: &Change) -> Vec<String> {
    let [before, after] = change.texts();
    vec![change.new.name.clone(), before, after, change.percent(), change.word().into()]
}

fn saved(path: &Path) -> Result<Results, Failure> {
    let unreadable = |why: &dyn Display| Failure::usage(format_args!("cannot read {}: {why}", name(path)));
    let bytes = read(path).map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&"it is not text"))?;
    Results::parse(text).map_err(|error| unreadable(&error))
}

fn failed(error: impl Display) -> Failure {
    Failure { status: Status::Failed, message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_status_remains() {
        use Status::{Clean, Failed, Fault, Usage};
        for (run, report, expected) in [
            (Clean, Clean, Clean),
            (Clean, Fault, Fault),
            (Clean, Usage, Usage),
            (Fault, Usage, Fault),
            (Failed, Usage, Failed),
            (Failed, Fault, Failed),
            (Fault, Failed, Failed),
        ] {
            assert_eq!(run.worse(report), expected, "{run:?}, {report:?}");
        }
    }

    #[test]
    fn results_that_cannot_be_compared_do_not_hide_a_fault() {
        let text = r#"{"schema": "warpheap-result/1", "kind": "bench", "version": "", "commit": "", "date": "",
            "data": {"rounds": 20}}"#;
        let results = Results::parse(text.into()).unwrap();
        let Data::Bench(report) = &results.data else { unreachable!("results of bench") };
        let old = Old { file: "old.json".into(), results: results.clone(), threshold: 0.1 };
        let console = Console::new([]);
        for (status, expected) in [(Status::Clean, Status::Usage), (Status::Fault, Status::Fault)] {
            let file = ResultFile::new("bench", None, None, report.clone());
            let failure = report_run(file, status, None, Some(&old), &console).unwrap_err();
            assert_eq!(failure.status, expected);
            assert!(failure.message.contains("no measurement in common"), "{}", failure.message);
        }
    }
}
