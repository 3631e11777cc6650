//! Cases as processes: the program of this build, with limits on its time and memory.

use super::super::args::Cli;
use super::bounds::{is_short, writes_only_to};
use super::case::Case;
use super::lines::cases;
use super::{LIMIT, fuzz, variable};
use clap::Parser;
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The statuses of `--help`, without that of Ctrl-C and of a hang: each run here is short.
const STATUSES: [i32; 5] = [0, 1, 2, 3, 5];

/// KiB of address space. A run that asks for more than the machine has must fail by itself.
const MEMORY: u64 = 16 << 20;

#[test]
fn no_process_crashes_or_hangs() {
    let Some(program) = program() else {
        return eprintln!("skipped: the program was not built beside its tests");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (count, ran) = (variable("WARPHEAP_FUZZ_PROCESSES", 40), Cell::new(0));
    fuzz(count, cases(), |case| check(&program, case, folder.path(), &ran));
    assert!(ran.get() >= count / 2, "only {} of {count} cases ran", ran.get());
}

/// The program, which cargo builds for tests of the package, but not for those of the program
/// alone. With `WARPHEAP_REQUIRE_PROGRAM=1` it is required.
fn program() -> Option<PathBuf> {
    let tests = std::env::current_exe().expect("the tests have a path");
    let path = tests.parent()?.parent()?.join(format!("warpheap{}", std::env::consts::EXE_SUFFIX));
    let is_required = std::env::var_os("WARPHEAP_REQUIRE_PROGRAM").is_some_and(|value| value == "1");
    assert!(path.is_file() || !is_required, "WARPHEAP_REQUIRE_PROGRAM=1, but there is no {}", path.display());
    path.is_file().then_some(path)
}

fn check(program: &Path, case: &Case, folder: &Path, ran: &Cell<u64>) -> Result<(), String> {
    let words = case.prepare(folder);
    // A word with a byte of zero cannot be passed to a process.
    let can_run = case.line.iter().all(|word| !word.contains(&0));
    let parsed = Cli::try_parse_from(std::iter::once("warpheap".into()).chain(words.iter().cloned()));
    let may_run = |cli: Cli| is_short(&cli.command) && writes_only_to(folder, folder, &cli.command);
    let outcome = if can_run && parsed.map_or(true, may_run) {
        ran.set(ran.get() + 1);
        run(program, case, &words, folder)
    } else {
        Ok(())
    };
    std::fs::read_dir(folder)
        .and_then(|entries| entries.into_iter().try_for_each(|entry| std::fs::remove_file(entry?.path())))
        .map_err(|error| format!("a case left what is not a file: {error}"))?;
    outcome
}

fn run(program: &Path, case: &Case, words: &[std::ffi::OsString], folder: &Path) -> Result<(), String> {
    let input = match case.files.is_empty() {
        true => Stdio::null(),
        false => std::fs::File::open(folder.join("0")).expect("it was written").into(),
    };
    let limits = format!("ulimit -v {MEMORY}; exec timeout -s KILL {} \"$@\"", LIMIT.as_secs());
    let output = Command::new("sh")
        .args(["-c", &limits, "sh"])
        .arg(program)
        .args(words)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .stdin(input)
        .output()
        .map_err(|error| error.to_string())?;
    judge(&output)
}

fn judge(output: &Output) -> Result<(), String> {
    let text = String::from_utf8_lossy(&output.stderr);
    let is_expected = output.status.code().is_some_and(|status| STATUSES.contains(&status));
    if !is_expected || text.contains("panicked") {
        let (status, signal) = (output.status.code(), output.status.signal());
        return Err(format!("status {status:?}, signal {signal:?}: {text}"));
    }
    // Only a run that fails must explain itself.
    let is_explained = output.status.success() || !output.stderr.is_empty() || !output.stdout.is_empty();
    if is_explained { Ok(()) } else { Err("it failed without a word".into()) }
}
