//! Reports of pools.

use crate::convert::to_python;
use crate::html::page;
use pyo3::prelude::*;
use warpheap::MemoryReport;

/// What of a pool is in use, what is free, what holds the memory, and what to do. `str()` gives
/// some 20 lines; a notebook shows a table and a picture.
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct Report(MemoryReport);

impl Report {
    /// Wraps a report of the library.
    pub fn new(report: MemoryReport) -> Report {
        Report(report)
    }
}

#[pymethods]
impl Report {
    /// The figures as a dictionary.
    fn to_dict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<warpheap.Report: {:#}>", self.0)
    }

    /// The report for a notebook.
    fn _repr_html_(&self) -> String {
        page(&self.0)
    }
}
