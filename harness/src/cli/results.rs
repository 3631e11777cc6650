//! The files of a run, and the watchdog of the run that produces them.

use super::console::Console;
use super::parse::JsonTarget;
use super::status::{Failure, Status};
use crate::report;
use crate::report::provenance::ResultFile;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
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
        Some(JsonTarget::File(path)) if place(path) == place(page) => Err(Failure::usage(
            "--html and --json have the same target; write at least one of them to another file",
        )),
        _ => report::file::check(page).map_err(Failure::usage),
    }
}

/// Fails before the run if its output would replace one of its inputs. The input `-` is no file.
pub fn reject_overwrite<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    output: Option<&Path>,
) -> Result<(), Failure> {
    let Some(output) = output else { return Ok(()) };
    let is_replaced = |input: &&Path| *input != Path::new("-") && place(input) == place(output);
    match inputs.into_iter().find(is_replaced) {
        Some(input) => Err(Failure::usage(format_args!(
            "the output {} would replace the input {}; write to another file",
            output.display(),
            input.display()
        ))),
        None => Ok(()),
    }
}

/// A path without links and `..`, as far as its file or its folder exists.
fn place(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_must_not_replace_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let [input, other] = ["in.json", "other.json"].map(|name| folder.path().join(name));
        std::fs::write(&input, "{}").unwrap();
        let detour = folder.path().join(".").join("in.json");
        let rejects = |output: &Path| {
            let inputs = [Path::new("-"), Path::new("no-such-file.json"), input.as_path()];
            reject_overwrite(inputs, Some(output)).is_err()
        };
        assert!(rejects(&input) && rejects(&detour));
        assert!(!rejects(&other) && !rejects(Path::new("-")), "a new file and standard output");
        assert!(reject_overwrite([input.as_path()], None).is_ok());
    }

    #[test]
    fn two_outputs_need_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("out");
        let detour = JsonTarget::File(folder.path().join(".").join("out"));
        assert!(check_page(Some(&page), Some(&detour)).is_err(), "neither exists yet");
        assert!(check_page(Some(&page), Some(&JsonTarget::Stdout)).is_ok());
    }
}
