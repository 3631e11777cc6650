//! Text as the tool takes it.

use std::ffi::CString;

/// `text` up to its first NUL.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
