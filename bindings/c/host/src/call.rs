//! The wrapper of every entry point that returns a status, and the text of the last failure.

use crate::failure::{Failure, Result};
use crate::status::wh_status;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The text of this thread's last failed call.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Calls `body` and converts its outcome, also a panic, to a status.
///
/// Unwind safety: a panic leaves shared state consistent (`crate::lock`), and a pool that panicked
/// during a change reports that itself (`WH_NOT_RESET`).
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> wh_status {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let failure = match outcome {
        Ok(Ok(())) => return wh_status::WH_OK,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::wh_status::*;
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
