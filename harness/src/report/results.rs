//! Results of a run with their provenance: everything that is needed to reproduce them.
//!
//! A file is written and read by the same types. Fields of a suite that older files or other
//! programs leave out have defaults; a file of a stress run or of host pools must have all.

use super::human::make_printable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::env;
use warpheap::{DeviceInfo, KernelImage};
use warpheap_harness::bench::suite::SuiteReport;
use warpheap_harness::build_info;
use warpheap_harness::pool_tools::bench::PoolBenchReport;
use warpheap_harness::stress::{AllocatorKind, StressReport};

/// Version of the layout of a results file.
pub const SCHEMA: &str = "warpheap-result/1";

/// How results were made. Results of another program need not have all of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The layout of the file.
    pub schema: String,
    /// Kind of the data: `stress`, `bench`, `doctor`, `pool-replay`, `pool-bench` or `pool-show`.
    pub kind: String,
    /// The title of results that another program measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The program's version.
    pub version: String,
    /// The commit it was built from, with `-dirty` if the sources differed.
    pub commit: String,
    /// UTC date and time, in the format of RFC 3339.
    pub date: String,
    /// The command line.
    #[serde(default)]
    pub command: Vec<String>,
    /// The compilers.
    pub compiler: Option<Compilers>,
    /// The machine.
    pub host: Option<Host>,
    /// The device that ran the kernels; null if there were several.
    pub device: Option<DeviceRecord>,
    /// The CUDA version of the driver; null on the CPU.
    pub driver: Option<String>,
    /// The kernel image that ran, as `sm_80`; null on the CPU.
    pub kernels: Option<String>,
}

/// The compilers of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compilers {
    /// Compiler of the host code.
    pub host: String,
    /// Compiler of the kernels; `none` if there are no GPU kernels.
    pub device: String,
}

/// The machine that the program runs on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Rust's target triple: `x86_64-unknown-linux-gnu`.
    #[serde(default)]
    pub target: String,
    /// The processor, if known.
    pub cpu: Option<String>,
    /// Number of concurrent threads; 0 if unknown.
    #[serde(default)]
    pub cpu_threads: usize,
}

/// The device that ran the kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cuda` or `cpu`.
    pub backend: String,
    /// Product name.
    pub name: String,
    /// In the form `9.0`.
    pub compute_capability: Option<String>,
    /// Number of SMs; 0 if unknown.
    #[serde(default)]
    pub multiprocessors: u32,
    /// Total memory; 0 if unknown.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Free memory when the result was written; 0 if unknown.
    #[serde(default)]
    pub memory_free_bytes: u64,
    /// Size of the L2; 0 if unknown.
    #[serde(default)]
    pub l2_bytes: u64,
}

impl From<&DeviceInfo> for DeviceRecord {
    fn from(info: &DeviceInfo) -> DeviceRecord {
        DeviceRecord {
            backend: info.backend.name().into(),
            name: info.name.clone(),
            compute_capability: info.compute_capability.map(dotted),
            multiprocessors: info.multiprocessors,
            memory_bytes: info.memory_total,
            memory_free_bytes: info.memory_free,
            l2_bytes: info.l2_bytes,
        }
    }
}

/// A version as `13.0`.
pub fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

impl Origin {
    /// The origin of results of this process.
    pub fn new(kind: &str, device: Option<&DeviceInfo>, kernels: Option<&KernelImage>) -> Origin {
        Origin {
            schema: SCHEMA.into(),
            kind: kind.into(),
            title: None,
            version: env!("CARGO_PKG_VERSION").into(),
            commit: build_info::COMMIT.into(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command: command_line(),
            compiler: Some(Compilers {
                host: build_info::HOST_COMPILER.into(),
                device: build_info::DEVICE_COMPILER.into(),
            }),
            host: Some(Host::this()),
            device: device.map(DeviceRecord::from),
            driver: device.and_then(|info| info.driver_version).map(dotted),
            kernels: kernels.map(|image| image.arch.into()),
        }
    }
}

impl Host {
    fn this() -> Host {
        Host {
            target: build_info::TARGET.into(),
            cpu: cpu_model(),
            cpu_threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }
}

/// The command line, with the program's name instead of its path.
fn command_line() -> Vec<String> {
    let args = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    ["warpheap".to_owned()].into_iter().chain(args).collect()
}

fn cpu_model() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A results file.
#[derive(Debug, Serialize)]
pub struct ResultFile<T> {
    /// How the results were made.
    #[serde(flatten)]
    pub origin: Origin,
    /// The results.
    pub data: T,
}

impl<T> ResultFile<T> {
    /// `data`, with its provenance.
    pub fn new(
        kind: &str,
        device: Option<&DeviceInfo>,
        kernels: Option<&KernelImage>,
        data: T,
    ) -> ResultFile<T> {
        ResultFile { origin: Origin::new(kind, device, kernels), data }
    }
}

/// The results of `warpheap stress`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StressResults {
    /// The worst status of the runs, which is the exit status.
    pub exit_status: u8,
    /// Whether the seed determined the interleaving, too.
    pub replay: bool,
    /// Seed of all runs.
    pub seed: u64,
    /// A run for each allocator.
    pub runs: Vec<StressRun>,
}

/// The stress run of an allocator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StressRun {
    /// The allocator.
    pub allocator: AllocatorKind,
    /// How it ended: `clean`, `fault`, or another end.
    pub status: Cow<'static, str>,
    /// Why it has no report.
    pub error: Option<String>,
    /// What it did.
    pub report: Option<StressReport>,
    /// The command that repeats the run, up to the first fault.
    pub reproduce: String,
}

/// Results that reports draw.
#[derive(Clone, Debug)]
pub enum Data {
    /// `warpheap bench`
    Bench(SuiteReport),
    /// `warpheap stress`
    Stress(StressResults),
    /// `warpheap pool bench`
    Pools(PoolBenchReport),
}

impl From<SuiteReport> for Data {
    fn from(report: SuiteReport) -> Data {
        Data::Bench(report)
    }
}

impl From<StressResults> for Data {
    fn from(results: StressResults) -> Data {
        Data::Stress(results)
    }
}

impl From<PoolBenchReport> for Data {
    fn from(report: PoolBenchReport) -> Data {
        Data::Pools(report)
    }
}

/// Why results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not JSON, or lacks a field.
    #[error("not a file of results: {0}")]
    Json(#[from] serde_json::Error),
    /// No schema.
    #[error("it has no `schema`; a file of results has `{SCHEMA}`")]
    NoSchema,
    /// Another schema.
    #[error(
        "its schema is `{0}`, but this program reads `{SCHEMA}`; use the version of warpheap that wrote it"
    )]
    Schema(String),
    /// Results that reports do not draw.
    #[error("it has the results of `{0}`; reports draw those of bench, stress and pool bench")]
    Kind(String),
}

/// Results with their text.
#[derive(Clone, Debug)]
pub struct Results {
    /// The JSON text.
    pub text: String,
    /// How they were made.
    pub origin: Origin,
    /// What was measured.
    pub data: Data,
}

impl Results {
    /// Reads the text of a file of results.
    pub fn parse(text: String) -> Result<Results, Error> {
        let mut value: Value = serde_json::from_str(&text)?;
        make_printable(&mut value);
        match value["schema"].as_str() {
            Some(SCHEMA) => {}
            Some(other) => return Err(Error::Schema(other.to_owned())),
            None => return Err(Error::NoSchema),
        }
        let origin = Origin::deserialize(&value)?;
        let data = match origin.kind.as_str() {
            "bench" => Data::Bench(data(&value)?),
            "stress" => Data::Stress(data(&value)?),
            "pool-bench" => Data::Pools(data(&value)?),
            other => return Err(Error::Kind(other.to_owned())),
        };
        Ok(Results { text, origin, data })
    }

    /// The results of a run.
    pub fn of(file: ResultFile<impl Serialize + Into<Data>>) -> Result<Results, Error> {
        let text = serde_json::to_string_pretty(&file)?;
        Ok(Results { text, origin: file.origin, data: file.data.into() })
    }

    /// The title of the results; otherwise their command: `warpheap bench`.
    pub fn title(&self) -> &str {
        if let Some(title) = &self.origin.title {
            return title;
        }
        match self.data {
            Data::Bench(_) => "warpheap bench",
            Data::Stress(_) => "warpheap stress",
            Data::Pools(_) => "warpheap pool bench",
        }
    }

    /// The name of the device.
    pub fn device(&self) -> &str {
        self.origin.device.as_ref().map_or("several devices", |device| &device.name)
    }

    /// The measurements without a value because a result was wrong, and why.
    pub fn wrong(&self) -> &[String] {
        match &self.data {
            Data::Bench(bench) => &bench.bench.wrong,
            Data::Pools(pools) => &pools.wrong,
            Data::Stress(_) => &[],
        }
    }

    /// Whether the CPU ran the kernels.
    pub fn is_simulated(&self) -> bool {
        self.origin.device.as_ref().is_some_and(|device| device.backend == "cpu")
    }
}

fn data<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(&value["data"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Whether `new` has every field of `old`, with its value. Objects may have more fields.
    fn has_all(new: &Value, old: &Value) -> bool {
        match (new, old) {
            (Value::Object(new), Value::Object(old)) => {
                old.iter().all(|(name, old)| new.get(name).is_some_and(|new| has_all(new, old)))
            }
            (Value::Array(new), Value::Array(old)) => {
                new.len() == old.len() && new.iter().zip(old).all(|(new, old)| has_all(new, old))
            }
            _ => new == old,
        }
    }

    #[test]
    fn all_committed_results_are_read_and_written_again() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        let folders = folders.filter(|path| path.is_dir());
        let files =
            folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
        let mut count = 0;
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            if !text.contains(SCHEMA) {
                continue;
            }
            let Results { text, origin, data } = match Results::parse(text) {
                Err(Error::Kind(_)) => continue,
                results => results.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            };
            let written = match data {
                Data::Bench(data) => serde_json::to_value(ResultFile { origin, data }),
                Data::Stress(data) => serde_json::to_value(ResultFile { origin, data }),
                Data::Pools(data) => serde_json::to_value(ResultFile { origin, data }),
            };
            let read: Value = serde_json::from_str(&text).unwrap();
            assert!(has_all(&written.unwrap(), &read), "{}", path.display());
            count += 1;
        }
        assert!(count > 30, "only {count} files were read");
    }

    #[test]
    fn other_files_are_errors_that_say_why() {
        let start = r#"{"version": "1", "commit": "c", "date": "d", "schema": "warpheap-result"#;
        for (text, part) in [
            ("a text".into(), "not a file of results: expected value"),
            ("{}".into(), "it has no `schema`"),
            (format!(r#"{start}/2"}}"#), "its schema is `warpheap-result/2`"),
            (format!(r#"{start}/1"}}"#), "missing field `kind`"),
            (format!(r#"{start}/1", "kind": "doctor"}}"#), "it has the results of `doctor`"),
            (format!(r#"{start}/1", "kind": "bench"}}"#), "not a file of results: invalid type: null"),
            (format!(r#"{start}/1", "kind": "bench", "data": {{}}}}"#), "missing field `rounds`"),
            (
                format!(r#"{start}/1", "kind": "bench", "data": {{"rounds": 1, "series": 2}}}}"#),
                "invalid type: integer `2`, expected a sequence",
            ),
        ] {
            let error = Results::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
