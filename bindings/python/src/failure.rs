//! Errors of the library as exceptions of the package.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;
use warpheap::Error;

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
