//! The records of a run, as JSON.

use crate::list;
use crate::run::{PTX, THREADS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use warpheap::Backend;

/// The end of one test on one device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub path: String,
    /// Time of all its launches.
    pub ms: u64,
    /// What went wrong.
    pub error: Option<String>,
}

/// All tests.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The form of this file.
    pub schema: &'static str,
    pub commit: &'static str,
    /// The compiler of the kernels.
    pub compiler: &'static str,
    /// The GPU, if one was used.
    pub device: Option<String>,
    /// Threads of each test.
    pub threads: u32,
    pub totals: Totals,
    /// Number of tests that are not run, by their reasons.
    pub excluded: BTreeMap<String, usize>,
    pub modules: Vec<ModuleRecord>,
    /// In the file, without the tests that have passed.
    pub results: Vec<Record>,
}

/// Numbers of tests.
#[derive(Debug, Serialize)]
pub struct Totals {
    /// All, without benchmarks.
    pub tests: usize,
    /// Those that are kernels.
    pub kernels: usize,
    pub passed_on_cpu: usize,
    pub passed_on_gpu: usize,
}

/// A group of tests: a module on a GPU.
#[derive(Debug, Serialize)]
pub struct ModuleRecord {
    pub name: String,
    pub tests: usize,
    /// Length of the PTX.
    pub ptx_bytes: usize,
}

/// A test.
#[derive(Debug, Serialize)]
pub struct Record {
    pub path: String,
    pub module: String,
    /// `passed`, the error, or nothing if it was not run there.
    pub cpu: Option<String>,
    pub gpu: Option<String>,
    /// Why it is not run.
    pub excluded: Option<String>,
}

impl Record {
    /// Whether it was run, and has passed on each device that ran it.
    fn has_passed(&self) -> bool {
        let mut all = [&self.cpu, &self.gpu].into_iter().flatten().peekable();
        all.peek().is_some() && all.all(|result| result == "passed")
    }
}

impl Report {
    /// The report of all tests before any was run.
    pub fn new() -> Report {
        let record = |path: &str, module: &str, excluded: Option<&str>| Record {
            path: path.into(),
            module: module.into(),
            cpu: None,
            gpu: None,
            excluded: excluded.map(String::from),
        };
        let mut results: Vec<Record> =
            list::all().iter().map(|(group, path)| record(path, group, None)).collect();
        let kernels = results.len();
        results.extend(list::excluded().map(|(group, path, reason)| record(path, group, Some(reason))));
        let mut excluded = BTreeMap::new();
        for (_, _, reason) in list::excluded() {
            *excluded.entry(reason.to_owned()).or_default() += 1;
        }
        let tests = |group: &str| list::all().iter().filter(|(of, _)| *of == group).count();
        let modules = PTX.iter().map(|(group, text)| ModuleRecord {
            name: (*group).into(),
            tests: tests(group),
            ptx_bytes: text.len(),
        });
        Report {
            schema: "warpheap-alloc-tests/1",
            commit: env!("WARPHEAP_ALLOC_COMMIT"),
            compiler: env!("WARPHEAP_ALLOC_COMPILER"),
            device: None,
            threads: THREADS,
            totals: Totals { tests: results.len(), kernels, passed_on_cpu: 0, passed_on_gpu: 0 },
            excluded,
            modules: modules.collect(),
            results,
        }
    }

    /// Adds the outcome of a test.
    pub fn insert(&mut self, device: Backend, outcome: Outcome) {
        let result = outcome.error.unwrap_or("passed".into());
        let passed = usize::from(result == "passed");
        let record = self.results.iter_mut().find(|record| record.path == outcome.path);
        let record = record.expect("only tests of the list are run");
        let (record, total) = match device {
            Backend::Cpu => (&mut record.cpu, &mut self.totals.passed_on_cpu),
            _ => (&mut record.gpu, &mut self.totals.passed_on_gpu),
        };
        *record = Some(result);
        *total += passed;
    }

    /// The totals for a person.
    pub fn summary(&self) -> String {
        let Totals { tests, kernels, passed_on_cpu, passed_on_gpu } = self.totals;
        let mut text = format!(
            "{tests} tests, {kernels} of them kernels: {passed_on_cpu} passed on the CPU, {passed_on_gpu} on the \
             GPU\nnot run:"
        );
        for (reason, count) in &self.excluded {
            text += &format!("\n{count:5} {reason}");
        }
        text
    }

    /// Writes the totals, and the tests that have not passed. Replaces the file only when all is
    /// written.
    pub fn write(&self, file: &Path) -> Result<(), String> {
        let results = self.results.iter().filter(|record| !record.has_passed()).collect::<Vec<_>>();
        let text = serde_json::to_value(self)
            .and_then(|mut all| {
                all["results"] = serde_json::to_value(results)?;
                serde_json::to_string_pretty(&all)
            })
            .map_err(|error| error.to_string())?;
        let part = file.with_extension("part");
        let written = fs::write(&part, text + "\n").and_then(|()| fs::rename(&part, file));
        written.map_err(|error| format!("{}: {error}", file.display()))
    }
}
