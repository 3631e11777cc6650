//! The records of a run, as JSON.

use crate::list::{self, Entry};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The records of all crates that were run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The form of this file.
    pub schema: String,
    /// The commit of the program that ran the last one.
    pub commit: String,
    /// The compiler of the kernels.
    pub compiler: String,
    /// The GPU, if one was used.
    pub device: Option<String>,
    pub crates: Vec<Record>,
}

/// A crate.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub version: String,
    pub kind: String,
    /// Whether the default set has it.
    pub is_small: bool,
    /// Length of the PTX. `None` without a compiler for kernels.
    pub ptx_bytes: Option<usize>,
    /// The run on the CPU's executor. `None` if the process failed before its end.
    pub cpu: Option<Run>,
    pub gpu: Option<GpuRun>,
    /// Why there is no result.
    pub error: Option<String>,
}

/// A run of all threads.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    pub threads: u32,
    /// Threads with another result than the host.
    pub wrong: u32,
    /// Faults that the heap recorded.
    pub faults: u64,
    /// Blocks that were not freed.
    pub live_blocks: u64,
    /// Violations that the audit of the heap's metadata found.
    #[serde(default)]
    pub violations: usize,
}

/// A run on a GPU, with what the driver made of the kernel.
#[derive(Debug, Serialize, Deserialize)]
pub struct GpuRun {
    pub device: String,
    pub run: Run,
    /// The architecture of the cubin that was loaded. `None` if the driver compiled the PTX.
    #[serde(default)]
    pub cubin: Option<String>,
    /// The load of the cubin, or the driver's compilation of the PTX, unless its cache has the
    /// result.
    pub load_ms: u64,
    pub run_ms: u64,
    pub registers: u32,
    /// The kernel's own frame, with spills. Functions called through pointers need more.
    pub local_bytes: u32,
    /// The stack that each thread had.
    pub stack_bytes: u64,
}

impl Run {
    /// Whether all results are those of the host, and the heap is clean.
    pub fn is_right(&self) -> bool {
        (self.wrong, self.faults, self.live_blocks, self.violations) == (0, 0, 0, 0)
    }
}

impl Record {
    /// The crate of `entry`, before it is run.
    pub fn new(entry: &Entry) -> Record {
        let ptx = crate::PTX.iter().find(|(name, ..)| *name == entry.name);
        Record {
            name: entry.name.into(),
            version: list::version(entry.name).into(),
            kind: entry.kind.into(),
            is_small: entry.is_small,
            ptx_bytes: ptx.map(|(_, text, _)| text.len()),
            cpu: None,
            gpu: None,
            error: None,
        }
    }

    /// A crate without a result.
    pub fn failed(name: &str, error: String) -> Record {
        let entry = list::find(name).expect("the crate is in the list");
        Record { error: Some(error), ..Record::new(entry) }
    }

    /// Whether every run had the results of the host, and left a clean heap.
    pub fn is_right(&self) -> bool {
        let gpu = self.gpu.as_ref().is_none_or(|gpu| gpu.run.is_right());
        self.error.is_none() && self.cpu.as_ref().is_some_and(Run::is_right) && gpu
    }

    /// The record for a person.
    pub fn line(&self) -> String {
        let verdict = if self.is_right() { "right" } else { "WRONG" };
        let ptx = self.ptx_bytes.map_or("no PTX".into(), |bytes| format!("{} KB", bytes.div_ceil(1000)));
        let mut line = format!("{:22} {:8} {verdict} {ptx:>9}", self.name, self.version);
        if let Some(GpuRun { run, load_ms, run_ms, registers, local_bytes, .. }) = &self.gpu {
            line += &format!(
                " {registers:3} registers, {local_bytes} bytes of stack, load {load_ms} ms, run {run_ms} ms, {} wrong, \
                 {} faults, {} live, {} violations",
                run.wrong, run.faults, run.live_blocks, run.violations
            );
        }
        match &self.error {
            Some(error) => format!("{line}: {error}"),
            None => line,
        }
    }
}

impl Report {
    pub fn read(file: &Path) -> Result<Report, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Replaces the file only when all is written.
    pub fn write(&self, file: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let part = file.with_extension("part");
        let written = fs::write(&part, text + "\n").and_then(|()| fs::rename(&part, file));
        written.map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Adds a record, or replaces that of the same crate. The order is that of the list.
    pub fn insert(&mut self, record: Record) {
        self.schema = "warpheap-crates/1".into();
        self.commit = env!("WARPHEAP_CRATES_COMMIT").into();
        self.compiler = env!("WARPHEAP_CRATES_COMPILER").into();
        if let Some(gpu) = &record.gpu {
            self.device = Some(gpu.device.clone());
        }
        self.crates.retain(|other| other.name != record.name);
        self.crates.push(record);
        self.crates.sort_by_key(|record| list::LIST.iter().position(|entry| entry.name == record.name));
    }
}
