//! The files of a run, and the watchdog of the run that produces them.

use super::console::Console;
use super::parse::JsonTarget;
use super::status::{Failure, Status};
use crate::report;
use crate::report::provenance::ResultFile;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;
use warpheap::{DeviceInfo, KernelImage, Watchdog};

/// Fails before the run if its results cannot be written after it.
pub fn check_target(target: Option<&JsonTarget>) -> Result<(), Failure> {
    match target {
        Some(JsonTarget::File(path)) => report::file::check(path).map_err(Failure::usage),
        _ => Ok(()),
    }
}

/// Fails before the run if its page cannot be written after it, or would replace the results.
pub fn check_page(page: Option<&Path>, json: Option<&JsonTarget>) -> Result<(), Failure> {
    let Some(page) = page else { return Ok(()) };
    match json {
        Some(JsonTarget::File(path)) if path == page => Err(Failure::usage(
            "--html and --json have the same target; write at least one of them to another file",
        )),
        _ => report::file::check(page).map_err(Failure::usage),
    }
}

/// The content of a file; `-` is standard input.
pub fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path);
    }
    let mut text = Vec::new();
    std::io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}

/// Writes results to the requested target, if there is one, and returns them with their provenance.
pub fn write_results<T: Serialize>(
    target: Option<&JsonTarget>,
    kind: &'static str,
    device: Option<&DeviceInfo>,
    kernels: Option<&'static KernelImage>,
    data: T,
    console: &Console,
) -> Result<ResultFile<T>, Failure> {
    let failed = |message| Failure { status: Status::Failed, message };
    let file = ResultFile::new(kind, device, kernels, data);
    match target {
        None => {}
        Some(JsonTarget::Stdout) => report::file::print(&mut std::io::stdout().lock(), &file)
            .map_err(|error| failed(format!("cannot write results to standard output: {error}")))?,
        Some(JsonTarget::File(path)) => {
            report::file::write(path, &file).map_err(|error| failed(error.to_string()))?;
            console.say(format_args!("results: {}", path.display()));
        }
    }
    Ok(file)
}

/// Writes what `print` writes to a file or to standard output. `what` names it.
pub fn write_target(
    target: &JsonTarget,
    what: &str,
    console: &Console,
    print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let failed = |message| Failure { status: Status::Failed, message };
    match target {
        JsonTarget::Stdout => print(&mut io::stdout().lock())
            .map_err(|error| failed(format!("cannot write the {what} to standard output: {error}"))),
        JsonTarget::File(path) => {
            report::file::write_with(path, |to| print(to)).map_err(|error| failed(error.to_string()))?;
            console.say(format_args!("{what}: {}", path.display()));
            Ok(())
        }
    }
}

/// A watchdog, or none if there is no limit.
pub fn watchdog(limit: Duration, what: impl Into<String>, advice: &'static str) -> Option<Watchdog> {
    (!limit.is_zero()).then(|| Watchdog::start(limit, what.into(), advice, Status::Hung as i32))
}
