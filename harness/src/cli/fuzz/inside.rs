//! Cases in this process: parsed, validated and, if that is short, run.

use super::super::args::{Cli, Command};
use super::super::console::Console;
use super::super::{execute, stress};
use super::bounds::{is_quiet, is_short, writes_only_to};
use super::case::Case;
use super::lines::cases;
use super::{LIMIT, fuzz, variable};
use crate::report::results::Results;
use crate::view::charts;
use clap::Parser;
use std::cell::Cell;
use std::ffi::OsString;
use std::path::Path;
use warpheap::Watchdog;

#[test]
fn no_case_panics_or_hangs() {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let (count, done) = (variable("WARPHEAP_FUZZ_CASES", 400), Cell::new(0));
    fuzz(count, cases(), |case| check(case, folder.path(), &done));
    assert!(done.get() >= count / 8, "only {} of {count} commands succeeded", done.get());
}

fn check(case: &Case, folder: &Path, done: &Cell<u64>) -> Result<(), String> {
    let _limit = Watchdog::start(LIMIT, format!("{case:?}"), "", 101);
    let words = case.prepare(folder);
    let outcome = run(words, folder, done).and_then(|()| {
        check_charts(case)?;
        check_outputs(folder)
    });
    std::fs::read_dir(folder)
        .and_then(|entries| entries.into_iter().try_for_each(|entry| std::fs::remove_file(entry?.path())))
        .map_err(|error| format!("a case left what is not a file: {error}"))?;
    outcome
}

/// Parses and runs a command. Counts those that succeed.
fn run(words: Vec<OsString>, folder: &Path, done: &Cell<u64>) -> Result<(), String> {
    let words = std::iter::once("warpheap".into()).chain(words);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return check_text(&error.to_string()),
    };
    if let Command::Stress(args) = &cli.command {
        stress::validate(args).or_else(|failure| check_text(&failure.message))?;
    }
    let (command, is_harmless) = (&cli.command, writes_only_to(folder, Path::new("/"), &cli.command));
    if !is_harmless || !is_short(command) || !is_quiet(command) {
        return Ok(());
    }
    match execute(cli.command, &Console::silent()) {
        Ok(_) => {
            done.set(done.get() + 1);
            Ok(())
        }
        Err(failure) => check_text(&failure.message),
    }
}

/// An error has a text, and no internals of the program.
fn check_text(text: &str) -> Result<(), String> {
    let is_wrong = text.trim().is_empty() || text.contains("panicked") || text.contains(".rs:");
    if is_wrong { Err(format!("a wrong text of an error: {text}")) } else { Ok(()) }
}

/// Each chart of results that can be read is a picture.
fn check_charts(case: &Case) -> Result<(), String> {
    let texts = case.files.iter().filter_map(|bytes| String::from_utf8(bytes.clone()).ok());
    for results in texts.filter_map(|text| Results::parse(text).ok()) {
        for (_, card) in charts(&results) {
            check_picture(&card.picture())?;
        }
    }
    Ok(())
}

fn check_picture(text: &str) -> Result<(), String> {
    let picture = roxmltree::Document::parse(text).map_err(|error| format!("no picture: {error}\n{text}"))?;
    let names =
        ["x", "y", "width", "height", "d", "points", "cx", "cy", "r", "x1", "x2", "y1", "y2", "viewBox"];
    let mut places = picture.descendants().flat_map(|node| node.attributes());
    let is_wrong = |value: &str| value.contains("NaN") || value.contains("inf");
    match places.find(|place| names.contains(&place.name()) && is_wrong(place.value())) {
        Some(place) => Err(format!("a picture with {}={}", place.name(), place.value())),
        None => Ok(()),
    }
}

/// What was written is whole.
fn check_outputs(folder: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    for path in entries.map(|entry| entry.expect("a file").path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with("new ") {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
        let text = || String::from_utf8(bytes.clone()).map_err(|_| format!("{name} is not UTF-8"));
        match bytes.first() {
            // The snapshot of a log.
            Some(0x80) => drop(
                serde_pickle::value_from_slice(&bytes, serde_pickle::DeOptions::new())
                    .map_err(|error| format!("{name} is no pickle: {error}"))?,
            ),
            Some(b'<') if bytes.starts_with(b"<svg") => check_picture(&text()?)?,
            Some(b'<') => drop(text()?),
            _ => drop(
                serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)
                    .map_err(|error| format!("{name} is not JSON: {error}"))?,
            ),
        }
    }
    Ok(())
}
