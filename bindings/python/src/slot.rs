//! Slot: a value that `close` drops, however many Python objects refer to it; and the classes of
//! pools, which have one.
//!
//! Any thread may call any method. Calls without the GIL take the lock without it, too: a thread
//! that holds the GIL never waits for the lock, so the two cannot deadlock. In a forked child,
//! calls fail before they take the lock, and the value is forgotten.

use crate::convert::{Failure, Result};
use pyo3::prelude::*;
use std::sync::{PoisonError, RwLock};
use warpheap_bindings::lock::{read, write};

/// A value until it is closed.
#[derive(Debug)]
pub struct Slot<T: Send> {
    /// A name for messages.
    what: &'static str,
    value: RwLock<Option<T>>,
}

impl<T: Send + Sync> Slot<T> {
    /// An open slot.
    pub fn new(what: &'static str, value: T) -> Slot<T> {
        Slot { what, value: RwLock::new(Some(value)) }
    }

    /// Calls `f` with the value, without the GIL. Fails after `close`.
    pub fn with<R: Send>(&self, py: Python<'_>, f: impl Send + FnOnce(&T) -> Result<R>) -> PyResult<R> {
        let call = || {
            Failure::check_process()?;
            let value = read(&self.value);
            value.as_ref().map_or_else(|| Err(Failure::closed(self.what)), f)
        };
        Ok(py.detach(call)?)
    }

    /// As [`with`](Self::with), with exclusive access.
    pub fn with_mut<R: Send>(
        &self,
        py: Python<'_>,
        f: impl Send + FnOnce(&mut T) -> Result<R>,
    ) -> PyResult<R> {
        let call = || {
            Failure::check_process()?;
            let mut value = write(&self.value);
            value.as_mut().map_or_else(|| Err(Failure::closed(self.what)), f)
        };
        Ok(py.detach(call)?)
    }

    /// Takes the value and passes it to `f`, without the GIL. Does nothing if it was closed before.
    pub fn close(&self, py: Python<'_>, f: impl Send + FnOnce(T) -> Result<()>) -> PyResult<()> {
        let call = || {
            Failure::check_process()?;
            let value = write(&self.value).take();
            value.map_or(Ok(()), f)
        };
        Ok(py.detach(call)?)
    }
}

impl<T: Send> Drop for Slot<T> {
    /// Drops the value without the GIL: the drop may wait for the device.
    fn drop(&mut self) {
        let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if Failure::check_process().is_err() {
            std::mem::forget(value);
        } else if value.is_some() {
            // Without an interpreter, the closure is dropped with the value.
            let _ = Python::try_attach(|py| py.detach(|| drop(value)));
        }
    }
}

/// The methods of a class of pools: those in the macro call, and those that all such classes have.
/// PyO3 allows one `impl` of a class to have methods.
macro_rules! pool_class {
    ($Class:ident; $(#[$doc:meta])* close = $close:expr; $($own:tt)*) => {
        #[pymethods]
        impl $Class {
            $($own)*

            /// The device.
            #[getter]
            pub fn device(&self) -> Device {
                self.device.clone()
            }

            $(#[$doc])*
            fn close(&self, py: Python<'_>) -> PyResult<()> {
                self.pool.close(py, $close)
            }

            fn __enter__(slf: Py<Self>) -> Py<Self> {
                slf
            }

            fn __exit__(
                &self,
                py: Python<'_>,
                _class: Py<PyAny>,
                _error: Py<PyAny>,
                _trace: Py<PyAny>,
            ) -> PyResult<()> {
                self.close(py)
            }
        }
    };
}

pub(crate) use pool_class;
