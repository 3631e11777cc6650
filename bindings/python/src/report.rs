//! Reports of pools, as text, dictionaries and HTML: a table of figures, the picture of the
//! addresses, the holders, the advice.
//!
//! Notebooks keep the HTML in their files, so it has inline styles only.

use crate::convert::to_python;
use maud::{Markup, html};
use pyo3::prelude::*;
use warpheap::{Bytes, Cell, Holder, MemoryReport};

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

/// The HTML of a report.
fn page(report: &MemoryReport) -> String {
    let markup = html! {
        div style="max-width:50em" {
            b { (report.allocator) }
            @if let Some(request) = &report.request {
                " could not allocate " (Bytes(request.bytes).to_string()) " aligned to " (request.align)
            }
            (picture(&report.picture))
            table {
                @for (name, value) in figures(report) {
                    tr { td style="text-align:left" { (name) } td style="text-align:right" { (value) } }
                }
            }
            (holders(&report.holders))
            @for line in &report.advice { p { (line) } }
        }
    };
    markup.into_string()
}

fn figures(report: &MemoryReport) -> Vec<(&'static str, String)> {
    let bytes = |bytes| Bytes(bytes).to_string();
    let some = [
        ("used", Some(bytes(report.used_bytes))),
        ("reserved", Some(bytes(report.reserved_bytes))),
        ("limit", report.limit_bytes.map(bytes)),
        ("free", Some(bytes(report.free_bytes))),
        ("withheld", Some(bytes(report.withheld_bytes))),
        ("largest free range", report.largest_free_bytes.map(bytes)),
        ("free ranges", report.free_ranges.map(|ranges| ranges.to_string())),
        ("fragmentation", Some(format!("{:.1} %", 100.0 * report.fragmentation()))),
        ("failed allocations", report.failed_allocations.map(|count| count.to_string())),
    ];
    some.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A bar of the addresses: the more of a cell is used, the darker.
fn picture(cells: &[Cell]) -> Markup {
    html! {
        @if !cells.is_empty() {
            div style="display:flex;height:1.5em;border:1px solid #888;margin:0.3em 0" {
                @for cell in cells {
                    @let share = cell.used_bytes as f64 / cell.bytes.max(1) as f64;
                    @let style = format!("flex:1;background:rgba(31,119,180,{share:.2})");
                    @let title = format!("{} of {} used", Bytes(cell.used_bytes), Bytes(cell.bytes));
                    div style=(style) title=(title) {}
                }
            }
        }
    }
}

fn holders(holders: &[Holder]) -> Markup {
    html! {
        @if !holders.is_empty() {
            table {
                tr { th { "held by" } th { "blocks" } th { "bytes" } }
                @for holder in holders {
                    tr {
                        td style="text-align:left" { (holder.name) }
                        td { (holder.blocks) }
                        td { (Bytes(holder.bytes).to_string()) }
                    }
                }
            }
        }
    }
}
