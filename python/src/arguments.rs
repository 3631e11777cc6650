//! Arguments of calls from Python.

use crate::failure::{Failure, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::alloc::Layout;

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
