//! Strings that the caller frees.

use crate::arguments::Out;
use crate::call::{c_string, call};
use crate::failure::{Failure, Result};
use crate::lock::lock;
use crate::status::wh_status::{self, *};
use host::driver::check_process;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::{CString, c_char};
use std::sync::Mutex;

/// Addresses of the strings that were returned and not freed yet. So a wrong free is an error.
static RETURNED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Returns `text` to the caller.
pub(crate) fn return_text(out: &Out<*mut c_char>, text: String) {
    let raw = c_string(text).into_raw();
    lock(&RETURNED).insert(raw.addr());
    out.set(raw);
}

/// Returns `value` as JSON.
pub(crate) fn return_json(out: &Out<*mut c_char>, value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string(value);
    let json = json.map_err(|error| Failure::new(WH_OTHER, format!("cannot write JSON: {error}")))?;
    return_text(out, json);
    Ok(())
}

/// Frees a string that a function of this library returned as `char *`. Does nothing for null.
/// Returns `WH_INVALID_FREE` for another pointer and for a string that was freed before.
///
/// # Safety
/// `string` is not in use any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_string_free(string: *mut c_char) -> wh_status {
    call(|| {
        if string.is_null() {
            return Ok(());
        }
        check_process()?;
        if !lock(&RETURNED).remove(&string.addr()) {
            let why = "no string of this library starts there; free each string once";
            return Err(Failure::new(WH_INVALID_FREE, format!("cannot free {string:p}: {why}")));
        }
        // SAFETY: `return_text` made it with `into_raw`, and its address was removed once.
        drop(unsafe { CString::from_raw(string) });
        Ok(())
    })
}
