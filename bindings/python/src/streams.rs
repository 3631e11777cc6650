//! The streams that a program passes, and the objects that own them.

use crate::convert::Result;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::{Mutex, MutexGuard};
use warpheap::Backend;
use warpheap_bindings::{RawStreams, lock};

/// A raw `CUstream`.
///
/// In Python, an integer, or a stream of CuPy, Numba, PyTorch, RMM or cuda.core: an object with
/// `__cuda_stream__`, `ptr`, `cuda_stream`, `handle` or `value`. The default, `None`, is 0.
#[derive(Debug, Default)]
pub struct RawStream {
    /// The `CUstream`.
    pub raw: u64,
    /// The object that was passed, unless it was a number: the stream may end with it.
    pub owner: Option<Py<PyAny>>,
}

/// Attributes with a stream's handle: PyTorch, CuPy, Numba, RMM.
const HANDLES: [&str; 4] = ["cuda_stream", "ptr", "handle", "value"];

impl<'py> FromPyObject<'_, 'py> for RawStream {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<RawStream> {
        if object.is_none() {
            return Ok(RawStream::default());
        }
        if let Some(raw) = number(&object)? {
            return Ok(RawStream { raw, owner: None });
        }
        match handle(&object)? {
            Some(raw) => Ok(RawStream { raw, owner: Some(object.to_owned().unbind()) }),
            None => Err(PyTypeError::new_err(format!(
                "a stream was expected: an integer or an object with `__cuda_stream__`, not {}",
                object.get_type().name()?
            ))),
        }
    }
}

/// The `CUstream` of a stream object.
fn handle(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if let Some(method) = object.getattr_opt("__cuda_stream__")? {
        let (_version, raw) = method.call0()?.extract::<(u64, u64)>()?;
        return Ok(Some(raw));
    }
    for name in HANDLES {
        let Some(handle) = object.getattr_opt(name)? else { continue };
        let handle = if handle.is_callable() { handle.call0()? } else { handle };
        // ctypes: the handle of a `c_void_p` is its `value`, `None` for null.
        let handle = handle.getattr_opt("value")?.unwrap_or(handle);
        if handle.is_none() {
            return Ok(Some(0));
        }
        if let Some(raw) = number(&handle)? {
            return Ok(Some(raw));
        }
    }
    Ok(None)
}

/// The value of an integer; `None` for other objects. Fails if the integer is out of range.
fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if object.is_instance_of::<pyo3::types::PyInt>() { object.extract().map(Some) } else { Ok(None) }
}

/// The stream objects that a program passed. They live as long as the pool uses their streams.
#[derive(Debug)]
pub struct Owners {
    backend: Backend,
    by_raw: Mutex<HashMap<u64, Py<PyAny>>>,
}

impl Owners {
    /// No objects yet.
    pub fn new(backend: Backend) -> Owners {
        Owners { backend, by_raw: Mutex::default() }
    }

    /// Keeps the object of a stream alive. Returns the raw stream.
    pub fn keep(&self, py: Python<'_>, stream: &RawStream) -> Result<u64> {
        let raw = canonical(self.backend, stream.raw)?;
        if let Some(owner) = &stream.owner {
            self.lock(py).entry(raw).or_insert_with(|| owner.clone_ref(py));
        }
        Ok(raw)
    }

    /// Releases the object of a stream.
    pub fn forget(&self, py: Python<'_>, raw: u64) -> Result<()> {
        let raw = canonical(self.backend, raw)?;
        // Dropped after the lock: this may run Python code.
        let owner = self.lock(py).remove(&raw);
        drop(owner);
        Ok(())
    }

    /// Only threads with the GIL take the lock, and hold it only for a change of the map.
    fn lock(&self, _py: Python<'_>) -> MutexGuard<'_, HashMap<u64, Py<PyAny>>> {
        lock::lock(&self.by_raw)
    }
}

/// The handle by which a pool knows the stream `raw`.
fn canonical(backend: Backend, raw: u64) -> Result<u64> {
    Ok(RawStreams::canonical(backend, pointer(raw))?.addr() as u64)
}

/// The `CUstream` that a number stands for.
pub fn pointer(raw: u64) -> *mut c_void {
    without_provenance_mut(raw as usize)
}
