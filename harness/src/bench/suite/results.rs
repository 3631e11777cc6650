//! The results of a running suite, and what it leaves out.

use super::extent::Extent;
use super::report::{Suite, SuiteReport};
use crate::bench::run::BenchReport;
use crate::bench::timing::BLOCK;
use crate::{Error, Result};
use std::time::{Duration, Instant};
use warpheap::driver::Backend;
use warpheap::error::OutOfMemory;

/// The results so far.
pub(super) struct Results<'a> {
    pub report: SuiteReport,
    pub progress: &'a mut dyn FnMut(&str),
    started: Instant,
    total: Duration,
}

impl<'a> Results<'a> {
    /// No results yet. The time begins.
    pub fn begin(suite: Suite, backend: Backend, extent: &Extent, progress: &'a mut dyn FnMut(&str)) -> Self {
        let report = empty(suite, backend, extent);
        Results { report, progress, started: Instant::now(), total: extent.total }
    }

    /// The results, at the end of the suite.
    pub fn end(self) -> SuiteReport {
        SuiteReport { seconds: self.started.elapsed().as_secs_f64(), ..self.report }
    }

    /// Why no measurement may begin any more.
    pub fn out_of_time(&self) -> Option<String> {
        (self.started.elapsed() > self.total)
            .then(|| format!("the suite ends after {} s", self.total.as_secs()))
    }

    pub fn leave_out(&mut self, what: String) {
        self.report.bench.left_out.push(what);
    }
}

/// The result of a measurement. `None` if it did not fit into memory or was wrong: the report says
/// which.
pub(super) fn outcome<T>(
    measured: Result<T>,
    what: impl FnOnce() -> String,
    results: &mut Results<'_>,
) -> Result<Option<T>> {
    match measured {
        Ok(value) => return Ok(Some(value)),
        Err(Error::Library(error @ warpheap::Error::OutOfMemory(OutOfMemory::Device { .. }))) => {
            results.leave_out(format!("{}: {error}", what()));
        }
        Err(error @ Error::WrongResult { .. }) => results.report.bench.wrong.push(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(None)
}

fn empty(suite: Suite, backend: Backend, extent: &Extent) -> SuiteReport {
    let (figures, left_out, wrong) = Default::default();
    let bench = BenchReport { block: BLOCK, rounds: extent.rounds, figures, left_out, wrong };
    let simulated = backend == Backend::Cpu;
    let note = "the CPU simulates the threads: these times say nothing about a GPU";
    let notes = simulated.then(|| note.to_owned()).into_iter().collect();
    SuiteReport { suite: Some(suite), simulated, notes, ..bench.into() }
}
