//! Values of the library as Python objects, and the layouts of requests.

use crate::failure::{Failure, Result};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use std::alloc::Layout;
use warpheap::device_pools::{Faults, Violation};

/// A Python object with the fields of `value`.
pub fn to_python(py: Python<'_>, value: &impl Serialize) -> PyResult<Py<PyAny>> {
    let text = serde_json::to_string(value)
        .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
    Ok(py.import("json")?.call_method1("loads", (text,))?.unbind())
}

/// The violated invariants, one text each.
pub fn violations(found: Vec<Violation>) -> Vec<String> {
    found.into_iter().map(|violation| format!("{}: {}", violation.invariant, violation.found)).collect()
}

/// The fields of recorded faults.
pub fn faults(faults: &Faults) -> Value {
    let first = faults.first.iter().map(|fault| {
        json!({
            "kind": format!("{:?}", fault.kind),
            "check": fault.check.to_string(),
            "address": fault.address,
            "detail": fault.detail,
            "thread": fault.thread,
            "block": fault.block,
            "sm": fault.sm,
            "nanos": fault.nanos,
        })
    });
    json!({ "count": faults.count, "first": first.collect::<Vec<_>>() })
}

/// The layout of a request.
pub fn layout(bytes: u64, align: u64) -> Result<Layout> {
    if !align.is_power_of_two() {
        let text = format!("an alignment of {align} was requested; it must be a power of two");
        return Err(Failure::invalid_request(text));
    }
    let sizes = usize::try_from(bytes).ok().zip(usize::try_from(align).ok());
    let layout = sizes.and_then(|(bytes, align)| Layout::from_size_align(bytes, align).ok());
    layout.ok_or_else(|| {
        let text = format!("{bytes} B aligned to {align} B exceed the address space; request fewer");
        Failure::invalid_request(text)
    })
}
