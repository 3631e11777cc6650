//! Results that were saved as JSON, for reports and comparisons. A run's results are read back from
//! the JSON that it writes, so a run and a file take the same path.

mod bench;
mod load;
mod pools;
mod stress;

pub use bench::{Bench, Bin, Collection, Figure, Latency, Point as SeriesPoint, Series, Time};
pub use load::{Drift, HeapLoad};
pub use pools::{Judged, Pair, Pools, Random};
pub use stress::{Run, Stress};

use super::printable::make_printable;
use super::provenance::SCHEMA;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// The fields of all results.
#[derive(Clone, Debug, Deserialize)]
pub struct Origin {
    /// Kind of the data.
    pub kind: String,
    /// The program's version.
    pub version: String,
    /// Its commit.
    pub commit: String,
    /// The title of results that another program measured.
    pub title: Option<String>,
    /// UTC date and time.
    pub date: String,
    /// The device.
    pub device: Option<Device>,
    /// The CUDA version of the driver.
    pub driver: Option<String>,
}

/// The device of a run.
#[derive(Clone, Debug, Deserialize)]
pub struct Device {
    /// `cuda` or `cpu`.
    pub backend: String,
    /// Product name.
    pub name: String,
}

/// The data of a run.
#[derive(Clone, Debug)]
pub enum Data {
    /// `warpheap bench`
    Bench(Bench),
    /// `warpheap stress`
    Stress(Stress),
    /// `warpheap pool bench`
    Pools(Pools),
}

/// Results with the text that they were read from.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The JSON text.
    pub text: String,
    /// All of it as a value.
    pub value: Value,
    /// How they were made.
    pub origin: Origin,
    /// What was measured.
    pub data: Data,
}

impl Saved {
    /// Reads the text of a file of results.
    pub fn parse(text: String) -> Result<Saved, Error> {
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
        Ok(Saved { text, value, origin, data })
    }

    /// The results of a run, as they are written to a file.
    pub fn of(results: &impl Serialize) -> Result<Saved, Error> {
        Saved::parse(serde_json::to_string_pretty(results)?)
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
