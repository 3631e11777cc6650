//! Runs crates from crates.io in kernels: on the CPU, and on the first GPU if there is one. The
//! results must be those of the host, and the heap must be free of live blocks and faults.
//!
//! ```text
//! warpheap-crates [--json FILE] [--limit SECONDS] [--cubin] [NAME]...
//! warpheap-crates --list | --page FILE
//! ```
//!
//! Runs all crates, or those that are named, each in a process of its own: a fault of a GPU spoils
//! the process. `--json` adds the records to `FILE`, or replaces those of the same crates.
//! `--limit` is the time for each crate, also for a kernel that hangs. `--cubin` loads cubins
//! instead of PTX, and fails if there is none for the GPU; a build with
//! `WARPHEAP_CRATES_CUBIN=sm_90` contains them. `--page` prints the page of the guide from such a
//! file. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
//!
//! Exits with 0 if all crates are right, 1 if one is not, 2 for wrong arguments.

mod list;
mod page;
mod record;
mod run;

use record::{Record, Report};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use warpheap::simt::KernelAllocator;

/// The kernels use their heap on the CPU, too.
#[global_allocator]
static ALLOCATOR: KernelAllocator = KernelAllocator::system();

/// The PTX of each crate, and a cubin of it or nothing. Empty without a compiler for kernels.
const PTX: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// The time for one crate: the driver compiles some kernels for minutes.
const LIMIT: Duration = Duration::from_secs(240);

/// Command line.
struct Args {
    json: Option<String>,
    limit: Duration,
    /// Load cubins instead of PTX.
    cubin: bool,
    names: Vec<String>,
    /// Run one crate in this process, and print its record.
    is_child: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args { json: None, limit: LIMIT, cubin: false, names: Vec::new(), is_child: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--json" => args.json = Some(value()?),
            "--limit" => {
                let seconds = value()?;
                let seconds = seconds.parse().map_err(|_| format!("{seconds} is no number of seconds"))?;
                args.limit = Duration::from_secs(seconds);
            }
            "--cubin" => args.cubin = true,
            "--child" => args.is_child = true,
            option if option.starts_with('-') => return Err(format!("there is no option {option}")),
            name if list::find(name).is_some() => args.names.push(word),
            name => return Err(format!("there is no crate {name} in the suite")),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match *words.as_slice() {
        ["--list"] => {
            run::built().iter().for_each(|name| println!("{name}"));
            Ok(true)
        }
        ["--page", file] => Report::read(Path::new(file)).map(|report| {
            print!("{}", page::page(&report));
            true
        }),
        _ => parse(words.iter().map(ToString::to_string)).and_then(|args| match args.is_child {
            true => child(&args),
            false => parent(&args),
        }),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs one crate, and prints its record as the last line.
fn child(args: &Args) -> Result<bool, String> {
    let [name] = args.names.as_slice() else { return Err("--child needs one name".into()) };
    let record = run::run(name, args.limit, args.cubin)?;
    println!("{}", serde_json::to_string(&record).map_err(|error| error.to_string())?);
    Ok(record.is_right())
}

/// Runs each crate in a process of its own.
fn parent(args: &Args) -> Result<bool, String> {
    let built = run::built();
    let names = match args.names.as_slice() {
        [] => built.clone(),
        names => names.iter().map(String::as_str).collect(),
    };
    if let Some(name) = names.iter().find(|name| !built.contains(*name)) {
        return Err(format!("{name} needs the feature `all`"));
    }
    let file = args.json.as_deref().map(Path::new);
    let mut report = match file.filter(|file| file.exists()) {
        Some(file) => Report::read(file)?,
        None => Report::default(),
    };
    let mut wrong = Vec::new();
    for name in names {
        let record = in_process(name, args)?;
        println!("{}", record.line());
        if !record.is_right() {
            wrong.push(name);
        }
        report.insert(record);
        if let Some(file) = file {
            report.write(file)?;
        }
    }
    match wrong.as_slice() {
        [] => println!("all are right"),
        wrong => println!("wrong: {}", wrong.join(" ")),
    }
    Ok(wrong.is_empty())
}

/// The record of `name`, of another process. If that fails, a record of its last words.
fn in_process(name: &str, args: &Args) -> Result<Record, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let limit = args.limit.as_secs().to_string();
    let mut command = Command::new(program);
    command.args(["--child", "--limit", &limit, name]).args(args.cubin.then_some("--cubin"));
    let output = command.output().map_err(|error| format!("cannot run this program: {error}"))?;
    let record = String::from_utf8_lossy(&output.stdout);
    let record = record.lines().last().and_then(|line| serde_json::from_str(line).ok());
    Ok(record.unwrap_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = errors.lines().filter(|line| !line.is_empty()).collect();
        let last = last.iter().rev().take(3).rev().copied().collect::<Vec<_>>().join(" ");
        Record::failed(name, format!("{}: {last}", output.status))
    }))
}
