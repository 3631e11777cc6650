//! `warpheap report`: draws saved results, and compares them with older ones. Runs write their own
//! pages by the same functions.

use super::args::{CompareArgs, ReportArgs};
use super::console::Console;
use super::results::read;
use super::status::{Failure, Status};
use crate::report::compare::{Change, Comparison, Old};
use crate::report::provenance::ResultFile;
use crate::report::saved::Saved;
use crate::report::table::Summary;
use crate::report::{file, html};
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// Draws and compares the files.
pub fn run(args: ReportArgs, console: &Console) -> Result<Status, Failure> {
    let results = args.files.iter().map(|path| saved(path)).collect::<Result<Vec<_>, _>>()?;
    let old = old(&args.compare)?;
    finish(&results, args.html.as_deref(), old.as_ref(), console)
}

/// Writes the page of a run and compares its results with older ones. Returns the worse of `status`
/// and that of the comparison.
pub fn report_run<T: Serialize>(
    results: &ResultFile<T>,
    status: Status,
    page: Option<&Path>,
    old: Option<&Old>,
    console: &Console,
) -> Result<Status, Failure> {
    if page.is_none() && old.is_none() {
        return Ok(status);
    }
    let saved = Saved::of(results).map_err(failed)?;
    let compared = finish(&[saved], page, old, console)?;
    Ok(if status == Status::Clean { compared } else { status })
}

/// The older results to compare with, if any. Runs read them before they measure.
pub fn old(args: &CompareArgs) -> Result<Option<Old>, Failure> {
    let Some(path) = &args.against else { return Ok(None) };
    Ok(Some(Old { file: name_of(path), saved: saved(path)?, threshold: args.threshold }))
}

fn finish(
    results: &[Saved],
    page: Option<&Path>,
    old: Option<&Old>,
    console: &Console,
) -> Result<Status, Failure> {
    let comparison = old.map(|old| old.compare(results)).transpose().map_err(Failure::usage);
    // A run that cannot be compared still has its page.
    if let Some(path) = page {
        let text = html::page(results, comparison.as_ref().ok().and_then(Option::as_ref)).map_err(failed)?;
        file::write_with(path, |to| to.write_all(text.as_bytes())).map_err(failed)?;
        console.say(format_args!("page: {}", path.display()));
    }
    Ok(match comparison? {
        Some(comparison) => {
            tell(&comparison, console);
            if comparison.is_worse() { Status::Fault } else { Status::Clean }
        }
        None => Status::Clean,
    })
}

const HEADINGS: [&str; 5] = ["measurement", "before", "after", "change", "verdict"];

fn tell(comparison: &Comparison, console: &Console) {
    let (commit, date) = &comparison.old;
    console.say(format_args!("\nagainst {} (commit {commit}, {date})", comparison.file));
    if let Some((old, new)) = &comparison.drivers {
        console.say(format_args!("different drivers: {old} before, {new} now"));
    }
    let changed = comparison.changed();
    if !changed.is_empty() {
        let mut table = Summary::new(&HEADINGS, console.is_terminal());
        changed.into_iter().for_each(|change| table.row(row(change)));
        console.say(format_args!("{}\n", table.render()));
    }
    let percent = 100.0 * comparison.threshold;
    console.say(format_args!("{} (beyond noise and {percent:.1} %)", comparison.summary()));
    let unmatched = comparison.only_old + comparison.only_new;
    if unmatched > 0 {
        console.say(format_args!(
            "without a counterpart: {} older and {} newer measurements",
            comparison.only_old, comparison.only_new
        ));
    }
}

fn row(change: &Change) -> Vec<String> {
    let [before, after] = change.texts();
    vec![change.new.name.clone(), before, after, change.percent(), change.word().into()]
}

fn saved(path: &Path) -> Result<Saved, Failure> {
    let unreadable = |why: &dyn Display| Failure::usage(format_args!("cannot read {}: {why}", name_of(path)));
    let bytes = read(path).map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&"it is not text"))?;
    Saved::parse(text).map_err(|error| unreadable(&error))
}

fn name_of(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

fn failed(error: impl Display) -> Failure {
    Failure { status: Status::Failed, message: error.to_string() }
}
