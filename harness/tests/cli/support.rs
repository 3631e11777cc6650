//! Runs the `warpheap` binary and reads its output.

use serde_json::Value;
use std::process::{Command, Output};

/// Arguments of a run that takes well under a second.
pub const SMALL: &str = "--backend cpu --threads 512 --size 16-512 --rounds 4 --streams 2";

pub fn warpheap(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpheap"))
        .args(args.split_whitespace())
        .env_remove("RUST_LOG")
        .output()
        .expect("the program starts")
}

/// Runs the program, which must end with the status `expected`.
#[track_caller]
pub fn ends(expected: i32, args: &str) -> Output {
    let output = warpheap(args);
    assert_eq!(status(&output), expected, "{args}: {}", stdout_and_stderr(&output));
    output
}

/// Runs the program, which must reject the arguments with an error that contains `part`.
#[track_caller]
pub fn rejects(args: &str, part: &str) -> Output {
    let output = ends(2, args);
    assert_eq!(out(&output), "", "{args}");
    assert!(err(&output).contains(part), "{args}: no {part:?} in {}", err(&output));
    output
}

pub fn stress(args: &str) -> Output {
    warpheap(&format!("stress {SMALL} {args}"))
}

pub fn status(output: &Output) -> i32 {
    let signal =
        || panic!("it did not end by itself, but by {}: {}", output.status, stdout_and_stderr(output));
    output.status.code().unwrap_or_else(signal)
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

pub fn stdout_and_stderr(output: &Output) -> String {
    out(output) + &err(output)
}

/// Parses the output of `--json -`.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stdout_and_stderr(output)))
}
