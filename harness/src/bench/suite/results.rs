//! The results of a running suite, and what it leaves out.

use super::extent::Extent;
use crate::Result;
use crate::bench::results::BenchReport;
use crate::bench::results::{Suite, SuiteReport};
use std::time::{Duration, Instant};
use warpheap::driver::Backend;

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

    /// Announces the measurement `name`. If the suite is out of time, it is left out, with `more`.
    pub fn may_begin(&mut self, name: &str, more: &str) -> bool {
        (self.progress)(name);
        let Some(why) = self.out_of_time() else { return true };
        self.leave_out(format!("{name}{more}: {why}"));
        false
    }

    /// The result of a measurement: see [`BenchReport::keep`].
    pub fn keep<T>(&mut self, what: &str, measured: Result<T>) -> Result<Option<T>> {
        self.report.bench.keep(what, measured)
    }

    pub fn leave_out(&mut self, what: String) {
        self.report.bench.left_out.push(what);
    }
}

fn empty(suite: Suite, backend: Backend, extent: &Extent) -> SuiteReport {
    let bench = BenchReport::empty(extent.rounds);
    let simulated = backend == Backend::Cpu;
    let note = "the CPU simulates the threads: these times say nothing about a GPU";
    let notes = simulated.then(|| note.to_owned()).into_iter().collect();
    SuiteReport { suite: Some(suite), simulated, notes, ..bench.into() }
}
