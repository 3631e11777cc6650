//! Runs each module in processes of its own, and collects the outcomes.

use crate::record::{Outcome, Report};
use crate::{Args, list};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{io, thread};
use warpheap::{Backend, Device};

/// The exit status of a child that cannot load its module.
pub const NO_MODULE: u8 = 3;

/// A test that takes longer is named.
const SLOW_MS: u64 = 3000;

/// The tests of one module, on one device.
struct Work {
    group: &'static str,
    device: Backend,
    paths: Vec<&'static str>,
}

/// The devices to use, and the name of the GPU.
fn devices(args: &Args) -> Result<(Vec<Backend>, Option<String>), String> {
    let is_required = args.device == Some(Backend::Cuda)
        || std::env::var_os("WARPHEAP_REQUIRE_CUDA").is_some_and(|value| value == "1");
    if args.device == Some(Backend::Cpu) {
        return Ok((vec![Backend::Cpu], None));
    }
    let cpu = if args.device.is_none() { vec![Backend::Cpu] } else { Vec::new() };
    match Device::cuda(0) {
        Ok(device) => Ok(([cpu, vec![Backend::Cuda]].concat(), Some(device.to_string()))),
        Err(error) if is_required || !error.is_no_device() => Err(format!("no GPU: {error}")),
        Err(_) => Ok((cpu, None)),
    }
}

/// Whether the test `path` of `group` is one of those that `name` names.
fn is_named(name: &str, group: &str, path: &str) -> bool {
    name == group || path.starts_with(name)
}

/// The first of `names` that names no test.
pub fn unknown(names: &[String]) -> Option<&String> {
    let all = list::all();
    names.iter().find(|name| !all.iter().any(|(group, path)| is_named(name, group, path)))
}

/// What is to be run. The longest lists first.
fn work(args: &Args, devices: &[Backend]) -> VecDeque<Work> {
    let is_chosen = |group: &str, path: &str| {
        args.names.is_empty() || args.names.iter().any(|name| is_named(name, group, path))
    };
    let mut all = Vec::<Work>::new();
    for &device in devices {
        for (group, path) in list::all().into_iter().filter(|(group, path)| is_chosen(group, path)) {
            match all.iter_mut().find(|work| work.group == group && work.device == device) {
                Some(work) => work.paths.push(path),
                None => all.push(Work { group, device, paths: vec![path] }),
            }
        }
    }
    all.sort_by_key(|work| std::cmp::Reverse(work.paths.len()));
    all.into()
}

/// Runs the tests that `args` names. Whether all have passed.
pub fn parent(args: &Args) -> Result<bool, String> {
    let (devices, gpu) = devices(args)?;
    let work = work(args, &devices);
    let expected: usize = work.iter().map(|work| work.paths.len()).sum();
    let (work, report) = (Mutex::new(work), Mutex::new(Report { device: gpu, ..Report::new() }));
    let write = |report: &Report| match &args.json {
        Some(file) => report.write(Path::new(file)),
        None => Ok(()),
    };
    let worker = || -> Result<(), String> {
        loop {
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(next) = next else { return Ok(()) };
            let began = Instant::now();
            let outcomes = module(args, &next)?;
            let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
            println!(
                "{:14} {}: {} of {} passed, {} s",
                next.group,
                next.device.name(),
                outcomes.len() - failed,
                next.paths.len(),
                began.elapsed().as_secs()
            );
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            for outcome in outcomes {
                if outcome.ms > SLOW_MS {
                    println!("slow: {} on {}, {} ms", outcome.path, next.device.name(), outcome.ms);
                }
                if let Some(error) = &outcome.error {
                    println!("FAILED {} on {}: {error}", outcome.path, next.device.name());
                }
                report.insert(next.device, outcome);
            }
            write(&report)?;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
    })?;
    let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}", report.summary());
    if (report.totals.passed_on_cpu as u64) < args.floor {
        return Err(format!("{} or more must pass on the CPU", args.floor));
    }
    Ok(report.totals.passed_on_cpu + report.totals.passed_on_gpu == expected)
}

/// Runs the tests of one module. A process that ends early is replaced.
fn module(args: &Args, work: &Work) -> Result<Vec<Outcome>, String> {
    let mut outcomes = Vec::new();
    while let Some(rest) = work.paths.get(outcomes.len()..).filter(|rest| !rest.is_empty()) {
        let (done, end) = process(args, work, rest)?;
        let is_whole = done.len() == rest.len() || done.iter().any(|outcome| outcome.error.is_some());
        let failed = match (is_whole, end.code) {
            (true, _) => 0,
            (false, Some(code)) if code == i32::from(NO_MODULE) => rest.len() - done.len(),
            (false, _) => 1,
        };
        let failed = rest[done.len()..].iter().take(failed);
        let failed =
            failed.map(|path| Outcome { path: (*path).into(), ms: 0, error: Some(end.words.clone()) });
        outcomes.extend(done);
        outcomes.extend(failed);
    }
    Ok(outcomes)
}

/// The end of a process.
struct End {
    code: Option<i32>,
    /// Its last words.
    words: String,
}

/// Runs `paths` in a process: the outcomes until its end.
fn process(args: &Args, work: &Work, paths: &[&str]) -> Result<(Vec<Outcome>, End), String> {
    let failed = |error: io::Error| format!("cannot run this program: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let device = if work.device == Backend::Cpu { "--cpu" } else { "--gpu" };
    let mut command = Command::new(program);
    command.args([device, "--child", work.group, "--limit", &args.limit.as_secs().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    // Too many for arguments. The child reads all before it writes.
    let mut names = child.stdin.take().ok_or("the child has no input")?;
    names.write_all(paths.join("\n").as_bytes()).map_err(failed)?;
    drop(names);
    let output = child.wait_with_output().map_err(failed)?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let outcomes = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = errors.lines().filter(|line| !line.is_empty()).collect();
    let last = last.iter().rev().take(3).rev().copied().collect::<Vec<_>>().join(" ");
    Ok((outcomes, End { code: output.status.code(), words: format!("{}: {last}", output.status) }))
}

/// The paths on the input of a child.
pub fn names_of_child() -> Result<Vec<&'static str>, String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read the names: {error}"))?;
    Ok(list::all()
        .into_iter()
        .map(|(_, path)| path)
        .filter(|path| text.lines().any(|line| line == *path))
        .collect())
}
