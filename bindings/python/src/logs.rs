//! Logs of pools and maps of heaps.

use crate::convert::{Failure, Result, to_python};
use crate::device::{Device, or_default};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::json;
use std::fmt::Display;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use warpheap::device_pools::HeapMap;
use warpheap::host_pools::read_rows;
use warpheap::host_pools::replay::{
    Hosts, POOLS, PoolKind, ReplayConfig, ReplayReport, Trace, TraceSummary, replay as replay_log,
};

/// The results of a replay.
#[derive(Serialize)]
struct Replayed {
    trace: TraceSummary,
    pool: ReplayReport,
    is_clean: bool,
}

/// Replays a log of allocations against a new pool, and returns what it found: `trace` describes
/// the log, `pool` times and peaks, `is_clean` whether the pool behaved correctly.
///
/// The log was written by `CachingPool(log=...)` or by RMM. `pool` is `"caching"`, `"blocks"`,
/// `"bump"`, `"driver"` or `"driver-pool"`. `max_bytes` limits its memory. With `threads`, as many
/// host threads as in the log make the calls, else one.
#[pyfunction]
#[pyo3(signature = (path, pool = "caching", *, device = None, max_bytes = None, threads = false))]
pub fn replay(
    py: Python<'_>,
    path: PathBuf,
    pool: &str,
    device: Option<Device>,
    max_bytes: Option<u64>,
    threads: bool,
) -> PyResult<Py<PyAny>> {
    let kind = pool_kind(pool)?;
    let device = or_default(py, device)?;
    let hosts = if threads { Hosts::AsLogged } else { Hosts::One };
    let config = ReplayConfig { bytes: max_bytes, hosts };
    let replayed = py.detach(|| {
        let trace = Trace::read(open(&path)?).map_err(|error| invalid(&path, error))?;
        let pool = replay_log(&device.inner, kind, &trace, config)?;
        let is_clean = pool.is_clean();
        Ok::<_, Failure>(Replayed { trace: trace.summary().clone(), pool, is_clean })
    })?;
    to_python(py, &replayed)
}

/// The rows of a log of allocations in the order of time: a dictionary for each call, with
/// `thread`, `time` in nanoseconds, `action`, `pointer`, `size`, `stream`, `align` and `tag`.
#[pyfunction]
pub fn read_log(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
    let rows = py.detach(|| {
        let rows = read_rows(open(&path)?).map_err(|error| invalid(&path, error))?;
        let row = |row: warpheap::host_pools::LogRow| {
            let record = row.record;
            json!({
                "line": row.line,
                "thread": record.thread,
                "time": record.time,
                "action": record.action.to_string(),
                "pointer": record.pointer,
                "size": record.size,
                "stream": record.stream,
                "align": record.align,
                "tag": record.tag.as_deref(),
            })
        };
        Ok::<_, Failure>(rows.into_iter().map(row).collect::<Vec<_>>())
    })?;
    to_python(py, &rows)
}

/// Reads and checks a map of a heap: JSON from `Heap.snapshot`, or from `warpheap map`.
#[pyfunction]
pub fn read_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
    let map = py.detach(|| {
        let map: HeapMap = serde_json::from_reader(open(&path)?).map_err(|error| invalid(&path, error))?;
        map.validate().map_err(|error| invalid(&path, error))?;
        Ok::<_, Failure>(map)
    })?;
    to_python(py, &map)
}

fn pool_kind(name: &str) -> Result<&'static PoolKind> {
    PoolKind::find(name).ok_or_else(|| {
        let names: Vec<_> = POOLS.iter().map(|kind| kind.name).collect();
        Failure::invalid_request(format!("there is no pool `{name}`; the pools are {}", names.join(", ")))
    })
}

fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path).map(BufReader::new).map_err(|error| invalid(path, error))
}

fn invalid(path: &Path, why: impl Display) -> Failure {
    Failure::invalid_file(format!("{}: {why}", path.display()))
}
