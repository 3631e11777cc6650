//! Random command lines and damaged files: none may panic, hang or leave the documented statuses.
//!
//! `values`, `lines` and `files` make cases, `case` is one, `bounds` says which may run, `inside`
//! runs them in this process and `outside` runs the program. Each case that has failed is in
//! `tests/corpus/cases`, and is run first.
//!
//! `WARPHEAP_FUZZ_CASES` and `WARPHEAP_FUZZ_PROCESSES` set the numbers of cases, and
//! `WARPHEAP_FUZZ_SEED` what they are. `scripts/fuzz.sh` runs many.

mod bounds;
mod case;
mod files;
mod inside;
mod lines;
mod outside;
mod values;

use case::Case;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A case that takes longer hangs. The longest take a few seconds on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A number in the environment.
fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

/// Runs the cases that failed once and then `count` of `strategy`, which are the same in each run
/// with the same seed. `check` returns what is wrong.
fn fuzz(count: u64, strategy: impl Strategy<Value = Case>, check: impl Fn(&Case) -> Result<(), String>) {
    for path in saved() {
        let case = Case::from_json(&std::fs::read_to_string(&path).expect("a text file"));
        check(&case).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&variable("WARPHEAP_FUZZ_SEED", 1).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let cases = u32::try_from(count).expect("fewer than 2^32 cases");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new_with_rng(config, rng)
        .run(&strategy, |case| check(&case).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => {
            panic!("{why}\nOnce mended, save it in {}:\n{}", corpus("cases").display(), case.to_json())
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

fn corpus(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(part)
}

/// The cases that failed once.
fn saved() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(corpus("cases")).expect("the folder of the cases");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths
}
