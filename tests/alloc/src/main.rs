//! Runs the tests of Rust's `alloc` library in kernels: on the CPU, and on the first GPU if there
//! is one. No thread of a test may panic, and the heap must be intact and empty afterwards.
//!
//! ```text
//! warpheap-alloc-tests [--cpu | --gpu] [--json FILE] [--jobs N] [--limit SECONDS]
//!     [--floor N] [NAME]...
//! warpheap-alloc-tests --list
//! ```
//!
//! Runs all tests, or those of the named modules and those whose paths begin with a name. The tests
//! of a module run in a process of their own. If it ends early, the test that it ran has failed,
//! and another process runs the rest. `--jobs` processes run at a time. `--limit` is the time for
//! one test. With `--floor` at least `N` tests must pass on the CPU. `--cpu` and `--gpu` leave out
//! the other device, and with `--gpu` or `WARPHEAP_REQUIRE_CUDA=1` a GPU is required. `--json`
//! writes all results to `FILE`.
//!
//! Exits with 0 if all tests have passed, 1 if one has not, 2 for wrong arguments.

#![feature(alloctests)]
#![allow(internal_features)]

mod list;
mod parent;
mod record;
mod run;

use std::process::ExitCode;
use std::time::Duration;
use warpheap::Backend;
use warpheap::simt::KernelAllocator;

/// The kernels use their heap on the CPU, too.
#[global_allocator]
static ALLOCATOR: KernelAllocator = KernelAllocator::system();

/// The time for one test.
const LIMIT: Duration = Duration::from_secs(120);

/// Command line.
#[derive(Debug)]
pub struct Args {
    /// The only device, if one is named.
    device: Option<Backend>,
    json: Option<String>,
    jobs: usize,
    limit: Duration,
    /// Fewer tests that pass on the CPU are a failure.
    floor: u64,
    names: Vec<String>,
    /// Run tests of one module in this process, and print their outcomes.
    child: Option<String>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut args =
        Args { device: None, json: None, jobs, limit: LIMIT, floor: 0, names: Vec::new(), child: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--cpu" => args.device = Some(Backend::Cpu),
            "--gpu" => args.device = Some(Backend::Cuda),
            "--json" => args.json = Some(value()?),
            "--jobs" => args.jobs = number(value()?)?.clamp(1, 64) as usize,
            "--limit" => args.limit = Duration::from_secs(number(value()?)?),
            "--floor" => args.floor = number(value()?)?,
            "--child" => args.child = Some(value()?),
            option if option.starts_with('-') => return Err(format!("there is no option {option}")),
            _ => args.names.push(word),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--list"] {
        for (group, path) in list::all() {
            println!("{group} {path}");
        }
        for (group, path, reason) in list::excluded() {
            println!("{group} {path}: {reason}");
        }
        return ExitCode::SUCCESS;
    }
    let parsed = parse(words.into_iter()).and_then(|args| match parent::unknown(&args.names) {
        Some(name) => Err(format!("no test or module is called {name}: --list names all")),
        None => Ok(args),
    });
    let args = match parsed {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if let Some(group) = &args.child {
        let names = parent::names_of_child();
        let result =
            names.and_then(|names| run::run(group, &names, args.device.unwrap_or(Backend::Cpu), args.limit));
        return result.map_or_else(
            |error| {
                eprintln!("{error}");
                ExitCode::from(parent::NO_MODULE)
            },
            |()| ExitCode::SUCCESS,
        );
    }
    match parent::parent(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
