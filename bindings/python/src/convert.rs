//! Errors and values of the library as exceptions of the package and Python objects, and the
//! layouts of requests.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;
use serde::Serialize;
use std::alloc::Layout;
use warpheap::Error;
use warpheap::device_pools::Violation;
use warpheap_bindings::heap;

/// The result of a call that is made without the GIL.
pub type Result<T> = std::result::Result<T, Failure>;

/// An exception to be raised.
#[derive(Debug)]
pub struct Failure {
    /// Its class in `warpheap.errors`.
    class: &'static str,
    text: String,
}

impl Failure {
    /// A use of an object after its `close`.
    pub fn closed(what: &str) -> Failure {
        Failure { class: "Closed", text: format!("the {what} was closed; create another") }
    }

    /// A log or a snapshot that cannot be read.
    pub fn invalid_file(text: String) -> Failure {
        Failure { class: "InvalidFile", text }
    }

    /// A free of a block that is not live.
    pub fn invalid_free(text: String) -> Failure {
        Failure { class: "InvalidFree", text }
    }

    /// A request that can never succeed.
    pub fn invalid_request(text: String) -> Failure {
        Failure { class: "InvalidRequest", text }
    }

    /// A feature that the device or this build lacks.
    pub fn not_supported(text: String) -> Failure {
        Failure { class: "NotSupported", text }
    }

    /// A heap without enough free memory.
    pub fn out_of_memory(text: String) -> Failure {
        Failure { class: "OutOfMemory", text }
    }

    /// Fails in a forked child, where other calls may wait for ever.
    pub fn check_process() -> Result<()> {
        Ok(warpheap::driver::check_process()?)
    }

    /// The message.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let class = match &error {
            Error::Forked => "Forked",
            Error::NoDevice { .. } => "NoDevice",
            Error::NotSupported(_) => "NotSupported",
            Error::KernelFault(_) => "KernelFault",
            Error::InvalidConfig(_) => "InvalidConfig",
            Error::InvalidRequest(_) => "InvalidRequest",
            Error::InvalidFree(_) => "InvalidFree",
            Error::OutOfMemory(_) => "OutOfMemory",
            Error::WrongDevice { .. } => "WrongDevice",
            Error::AllocLog { .. } => "InvalidFile",
            _ => "Error",
        };
        Failure { class, text: error.to_string() }
    }
}

impl From<heap::Failure> for Failure {
    fn from(failure: heap::Failure) -> Failure {
        match failure {
            heap::Failure::OutOfMemory(text) => Failure::out_of_memory(text),
            heap::Failure::InvalidFree(text) => Failure::invalid_free(text),
            heap::Failure::Other(error) => error.into(),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        let class = |py: Python<'_>| -> PyResult<Py<PyType>> {
            let class = py.import("warpheap.errors")?.getattr(failure.class)?;
            Ok(class.cast_into::<PyType>()?.unbind())
        };
        Python::attach(|py| match class(py) {
            Ok(class) => PyErr::from_type(class.into_bound(py), failure.text),
            // Only a damaged installation lacks the class.
            Err(_) => PyException::new_err(failure.text),
        })
    }
}

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
