//! A failed free: the error, and the handle that was to be freed.

use crate::error::Error;
use std::fmt;

/// A handle could not be freed. It is returned in this error unchanged.
///
/// Dropping this drops the handle, which tries once more. `?` converts this into an [`Error`] and
/// drops the handle too.
#[must_use = "the handle is in it, and its memory is freed when it is dropped"]
pub struct DeallocateError<H> {
    /// Boxed, to keep results of a free small.
    of: Box<(Error, H)>,
}

impl<H> DeallocateError<H> {
    pub(super) fn new(error: Error, handle: H) -> DeallocateError<H> {
        DeallocateError { of: Box::new((error, handle)) }
    }

    /// Reason of the failure.
    pub fn error(&self) -> &Error {
        &self.of.0
    }

    /// The handle, to be used or freed again.
    pub fn into_handle(self) -> H {
        self.of.1
    }

    /// The error and the handle.
    pub fn into_parts(self) -> (Error, H) {
        *self.of
    }
}

impl<H> fmt::Debug for DeallocateError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeallocateError").field(self.error()).finish_non_exhaustive()
    }
}

impl<H> fmt::Display for DeallocateError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a handle could not be given back: {}; DeallocateError::into_handle has it", self.error())
    }
}

impl<H> std::error::Error for DeallocateError<H> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

impl<H> From<DeallocateError<H>> for Error {
    fn from(failed: DeallocateError<H>) -> Error {
        let (error, handle) = failed.into_parts();
        drop(handle);
        error
    }
}
