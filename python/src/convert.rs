//! Values of the library as Python objects: dictionaries, lists, numbers and strings.

use pyo3::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
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
