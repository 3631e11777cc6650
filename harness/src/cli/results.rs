//! The files of a run, and the watchdog of the run that produces them.

use super::console::Console;
use super::input::{self, is_stdin};
use super::parse::Target;
use super::status::{Failure, Status};
use crate::report::file;
use crate::report::results::ResultFile;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use warpheap::{DeviceInfo, KernelImage, Watchdog};

/// Fails before the run if one of its outputs, each given with its option, cannot be written after
/// it, or would replace another one or an input.
pub fn check_files(inputs: &[&Path], outputs: &[(&str, &Target)]) -> Result<(), Failure> {
    if inputs.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::usage("standard input can be read only once; name files for the other inputs"));
    }
    for (i, (option, output)) in outputs.iter().enumerate() {
        if let Some((other, _)) = outputs[..i].iter().find(|(_, before)| is_same(before, output)) {
            return Err(Failure::usage(format_args!(
                "{other} and {option} have the same target; write at least one of them to another file"
            )));
        }
        if let Target::File(path) = output {
            file::check(path).map_err(Failure::usage)?;
            reject_overwrite(inputs, path)?;
        }
    }
    Ok(())
}

fn is_same(a: &Target, b: &Target) -> bool {
    match (a, b) {
        (Target::Stdout, Target::Stdout) => true,
        (Target::File(a), Target::File(b)) => file::is_same(a, b),
        _ => false,
    }
}

fn reject_overwrite(inputs: &[&Path], output: &Path) -> Result<(), Failure> {
    match inputs.iter().find(|path| !is_stdin(path) && file::is_same(path, output)) {
        Some(input) => Err(Failure::usage(format_args!(
            "the output {} would replace the input {}; write to another file",
            output.display(),
            input::name(input)
        ))),
        None => Ok(()),
    }
}

/// Writes results to the requested target, if there is one, and returns them with their provenance.
pub fn write_results<T: Serialize>(
    target: Option<&Target>,
    kind: &'static str,
    device: Option<&DeviceInfo>,
    kernels: Option<&'static KernelImage>,
    data: T,
    console: &Console,
) -> Result<ResultFile<T>, Failure> {
    let results = ResultFile::new(kind, device, kernels, data);
    if let Some(target) = target {
        write_target(target, "results", console, |mut to| file::print(&mut to, &results))?;
    }
    Ok(results)
}

/// Writes what `print` writes to a file or to standard output. `what` names it.
pub fn write_target(
    target: &Target,
    what: &str,
    console: &Console,
    print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let failed = |message| Failure { status: Status::Failed, message };
    match target {
        Target::Stdout => {
            let mut stdout = io::stdout().lock();
            let printed = print(&mut stdout).and_then(|()| stdout.flush());
            printed.map_err(|error| failed(format!("cannot write the {what} to standard output: {error}")))
        }
        Target::File(path) => {
            file::write_with(path, |to| print(to)).map_err(|error| failed(error.to_string()))?;
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
    use std::path::PathBuf;

    fn to(path: PathBuf) -> Target {
        Target::File(path)
    }

    #[test]
    fn an_output_must_not_replace_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let [input, other] = ["in.json", "other.json"].map(|name| folder.path().join(name));
        std::fs::write(&input, "{}").unwrap();
        let detour = folder.path().join(".").join("in.json");
        let rejects = |output: &Target| {
            let inputs = [Path::new("-"), Path::new("no-such-file.json"), input.as_path()];
            check_files(&inputs, &[("--json", output)]).is_err()
        };
        assert!(rejects(&to(input.clone())) && rejects(&to(detour)));
        assert!(!rejects(&to(other)) && !rejects(&Target::Stdout), "a new file and standard output");
        assert!(check_files(&[&input], &[]).is_ok());
    }

    #[test]
    fn two_outputs_need_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let page = to(folder.path().join("out"));
        let detour = to(folder.path().join(".").join("out"));
        let checked = |other: &Target| check_files(&[], &[("--json", other), ("--html", &page)]);
        assert!(checked(&detour).is_err(), "neither exists yet");
        assert!(checked(&Target::Stdout).is_ok());
        let twice = [("--json", &Target::Stdout), ("--html", &Target::Stdout)];
        assert!(check_files(&[], &twice).is_err());
        let null = to("/dev/null".into());
        assert!(check_files(&[], &[("--json", &null), ("--html", &null)]).is_ok());
    }

    #[test]
    fn standard_input_is_read_once() {
        let inputs = [Path::new("-"), Path::new("a.json"), Path::new("-")];
        assert!(check_files(&inputs[..2], &[]).is_ok() && check_files(&inputs, &[]).is_err());
    }
}
