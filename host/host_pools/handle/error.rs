//! A failed free: the error, and the handle that was to be freed.

use crate::error::Error;
use std::fmt;

/// A handle could not be freed. It is returned in this error unchanged.
///
/// Dropping this drops the handle, which tries once more. `?` converts this into an [`Error`] and
/// drops the handle too.
#[derive(thiserror::Error)]
#[error("a handle could not be freed: {source}; DeallocateError::into_handle returns it")]
#[must_use = "it contains the handle, which is freed when this is dropped"]
pub struct DeallocateError<H> {
    source: Error,
    /// Boxed, to keep results of a free small.
    handle: Box<H>,
}

impl<H> DeallocateError<H> {
    pub(super) fn new(source: Error, handle: H) -> DeallocateError<H> {
        DeallocateError { source, handle: Box::new(handle) }
    }

    /// Reason of the failure.
    pub fn error(&self) -> &Error {
        &self.source
    }

    /// The handle, to be used or freed again.
    pub fn into_handle(self) -> H {
        *self.handle
    }

    /// The error and the handle.
    pub fn into_parts(self) -> (Error, H) {
        (self.source, *self.handle)
    }
}

impl<H> fmt::Debug for DeallocateError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeallocateError").field(&self.source).finish_non_exhaustive()
    }
}

impl<H> From<DeallocateError<H>> for Error {
    fn from(failed: DeallocateError<H>) -> Error {
        failed.into_parts().0
    }
}
