//! The wrapper of every entry point that returns a status, the text of the last failure, and other
//! strings for the caller.

use crate::arguments::Out;
use crate::status::{Failure, Result, wh_status, wh_status::*};
use host::driver::check_process;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use warpheap_bindings::lock::lock;

thread_local! {
    /// The text of this thread's last failed call.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Calls `body` and converts its outcome, also a panic, to a status.
///
/// Unwind safety: a panic leaves shared state consistent (`warpheap_bindings::lock`), and a pool
/// that panicked during a change reports that itself (`WH_NOT_RESET`).
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> wh_status {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let failure = match outcome {
        Ok(Ok(())) => return WH_OK,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::panicked(&*payload),
    };
    let status = failure.status;
    remember(failure);
    status
}

fn remember(failure: Failure) {
    let text = c_string(failure.text);
    // Fails while the thread is being destroyed; then there is no text.
    let _ = LAST.try_with(|last| last.replace(Some(text)));
}

/// The text without bytes of zero, which would end it.
pub(crate) fn c_string(text: String) -> CString {
    let mut bytes = text.into_bytes();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}

/// The text of the last failed call of this thread, in UTF-8; `""` if none has failed. Valid until
/// the next call of this thread. A call that succeeds does not clear it.
#[unsafe(no_mangle)]
pub extern "C" fn wh_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The version of the library, such as `"0.1.0"`. The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn wh_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: valid until the next call of this thread.
        unsafe { CStr::from_ptr(wh_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_status_with_its_text() {
        assert_eq!(last(), "");
        assert_eq!(call(|| panic!("planted {}", 7)), WH_PANIC);
        assert_eq!(
            last(),
            "libwarpheap panicked: planted 7; this is a defect of the library, please report it"
        );
        assert_eq!(call(|| panic!("planted")), WH_PANIC);
        assert!(last().contains("panicked: planted;"), "{}", last());
        assert_eq!(call(|| std::panic::panic_any(7)), WH_PANIC);
        assert!(last().contains("panicked: no message;"), "{}", last());
    }

    #[test]
    fn the_text_is_kept_by_thread_until_another_failure() {
        let fail = |text: &str| call(|| Err(Failure::new(WH_DRIVER, text)));
        assert_eq!(fail("a\0b"), WH_DRIVER);
        assert_eq!((last(), call(|| Ok(()))), ("ab".to_owned(), WH_OK));
        assert_eq!(last(), "ab");
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(last(), "")).join().unwrap());
        fail("c");
        assert_eq!(last(), "c");
    }
}
