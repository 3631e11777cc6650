//! Results: those of a run, and those of a file for reports and comparisons.
//!
//! A file is written and read by the same types. Fields of a suite that older files or other
//! programs leave out have defaults; a file of a stress run or of host pools must have all.

use super::human::make_printable;
use super::provenance::{Origin, SCHEMA};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use warpheap::{DeviceInfo, KernelImage};
use warpheap_harness::bench::suite::SuiteReport;
use warpheap_harness::pool_tools::bench::PoolBenchReport;
use warpheap_harness::stress::{AllocatorKind, StressReport};

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
