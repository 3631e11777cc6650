//! Statuses, and the status and the text of each failure.

use host::Error;
use std::any::Any;
use std::ffi::{CStr, c_char};
use warpheap_bindings::heap;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum wh_status {
    /// The call succeeded.
    WH_OK = 0,
    /// The owner is null, was destroyed, or never existed.
    WH_INVALID_HANDLE = 1,
    /// An argument or an option is invalid. The text names it and the allowed values.
    WH_INVALID_ARGUMENT = 2,
    /// Out of memory or of addresses. Nothing was allocated.
    WH_OUT_OF_MEMORY = 3,
    /// There is no CUDA driver, no GPU, or no current context.
    WH_NO_DEVICE = 4,
    /// An object belongs to another device or context than the pool.
    WH_WRONG_DEVICE = 5,
    /// No live block starts at the address: a double, foreign or interior free. Nothing was freed.
    WH_INVALID_FREE = 6,
    /// The last reset of the pool failed. Reset it again, or destroy it.
    WH_NOT_RESET = 7,
    /// The device, the driver or this build of the library lacks a feature.
    WH_NOT_SUPPORTED = 8,
    /// The pool cannot be reset while blocks are allocated.
    WH_IN_USE = 9,
    /// A call of the driver failed. The text has the call and its status.
    WH_DRIVER = 10,
    /// A kernel failed, of this library or of the program, before this call or during it.
    WH_KERNEL = 11,
    /// The kernels of this library could not be compiled, loaded or launched.
    WH_MODULE = 12,
    /// The library panicked, which is a defect of the library.
    WH_PANIC = 13,
    /// An error without a status of its own.
    WH_OTHER = 14,
    /// The process was forked after its parent had made a pool. Every call fails there: threads and
    /// CUDA do not survive a fork. Create pools after the fork, or start a new program.
    WH_FORKED = 15,
}

use wh_status::*;

/// Every status with its name.
const NAMES: [(wh_status, &CStr); 16] = [
    (WH_OK, c"WH_OK"),
    (WH_INVALID_HANDLE, c"WH_INVALID_HANDLE"),
    (WH_INVALID_ARGUMENT, c"WH_INVALID_ARGUMENT"),
    (WH_OUT_OF_MEMORY, c"WH_OUT_OF_MEMORY"),
    (WH_NO_DEVICE, c"WH_NO_DEVICE"),
    (WH_WRONG_DEVICE, c"WH_WRONG_DEVICE"),
    (WH_INVALID_FREE, c"WH_INVALID_FREE"),
    (WH_NOT_RESET, c"WH_NOT_RESET"),
    (WH_NOT_SUPPORTED, c"WH_NOT_SUPPORTED"),
    (WH_IN_USE, c"WH_IN_USE"),
    (WH_DRIVER, c"WH_DRIVER"),
    (WH_KERNEL, c"WH_KERNEL"),
    (WH_MODULE, c"WH_MODULE"),
    (WH_PANIC, c"WH_PANIC"),
    (WH_OTHER, c"WH_OTHER"),
    (WH_FORKED, c"WH_FORKED"),
];

impl wh_status {
    /// The status of an error of the host library.
    pub(crate) fn of(error: &Error) -> wh_status {
        match error {
            Error::NoDevice { .. } => WH_NO_DEVICE,
            Error::Driver { .. } => WH_DRIVER,
            Error::Forked => WH_FORKED,
            Error::NotSupported(_) => WH_NOT_SUPPORTED,
            Error::KernelFault(_) => WH_KERNEL,
            Error::Jit { .. } | Error::InvalidModule(_) | Error::InvalidLaunch { .. } => WH_MODULE,
            Error::InvalidConfig(_) | Error::InvalidRequest(_) | Error::OutOfBounds { .. } => {
                WH_INVALID_ARGUMENT
            }
            Error::InvalidFree(_) => WH_INVALID_FREE,
            Error::InUse { .. } => WH_IN_USE,
            Error::NotReset { .. } => WH_NOT_RESET,
            Error::OutOfMemory(_) | Error::FailureInjected { .. } => WH_OUT_OF_MEMORY,
            Error::WrongDevice { .. } => WH_WRONG_DEVICE,
            // `Dangling` and `AllocLog`, which no call of this library causes, and errors that are
            // added later.
            _ => WH_OTHER,
        }
    }
}

/// The name of a status, such as `"WH_OUT_OF_MEMORY"`; `"unknown status"` for another number. The
/// string is static.
#[unsafe(no_mangle)]
pub extern "C" fn wh_status_name(status: i32) -> *const c_char {
    let name = NAMES.iter().find(|(one, _)| *one as i32 == status);
    name.map_or(c"unknown status", |(_, name)| name).as_ptr()
}

/// Why a call failed: its status and its text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: wh_status,
    pub text: String,
}

/// The result of a part of a call.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: wh_status, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into() }
    }

    /// An invalid value of the parameter or option `name`.
    pub fn argument(name: &str, why: impl std::fmt::Display) -> Failure {
        Failure::new(WH_INVALID_ARGUMENT, format!("invalid `{name}`: {why}"))
    }

    /// From the payload of a panic.
    pub fn panicked(payload: &(dyn Any + Send)) -> Failure {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        Failure::new(
            WH_PANIC,
            format!("libwarpheap panicked: {text}; this is a defect of the library, please report it"),
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(wh_status::of(&error), error.to_string())
    }
}

impl From<heap::Failure> for Failure {
    fn from(failure: heap::Failure) -> Failure {
        match failure {
            heap::Failure::OutOfMemory(text) => Failure::new(WH_OUT_OF_MEMORY, text),
            heap::Failure::InvalidFree(text) => Failure::new(WH_INVALID_FREE, text),
            heap::Failure::Other(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Bytes;
    use host::error::{InvalidFree, InvalidRequest, KernelFault, NotSupported, OutOfMemory};

    #[test]
    fn names_are_in_order_and_spell_the_status() {
        for (number, (status, name)) in (0..).zip(NAMES) {
            assert_eq!(status as i32, number);
            assert_eq!(format!("{status:?}"), name.to_str().unwrap());
        }
    }

    #[test]
    fn each_cause_has_its_status() {
        let (text, bytes, advice) = (String::new, Bytes(1), "advice");
        let given: [(Error, wh_status); 11] = [
            (Error::NoDevice { requested: text(), found: text(), advice: text() }, WH_NO_DEVICE),
            (Error::Driver { call: "cuX", code: 1, name: text(), detail: text() }, WH_DRIVER),
            (Error::Forked, WH_FORKED),
            (NotSupported::DriverTooOld { symbol: "cuX" }.into(), WH_NOT_SUPPORTED),
            (KernelFault::CpuStream { message: text() }.into(), WH_KERNEL),
            (Error::Jit { code: 1, name: text(), advice: text(), log: text() }, WH_MODULE),
            (InvalidRequest::EventOrder.into(), WH_INVALID_ARGUMENT),
            (InvalidFree::Heap { failed: 1, requested: 1, first: text() }.into(), WH_INVALID_FREE),
            (Error::NotReset { pool: "a heap" }, WH_NOT_RESET),
            (
                OutOfMemory::Reservation { what: "x", requested: bytes, reserved: bytes, advice }.into(),
                WH_OUT_OF_MEMORY,
            ),
            (Error::WrongDevice { what: "x", expected: text(), got: text() }, WH_WRONG_DEVICE),
        ];
        for (error, status) in given {
            assert_eq!(wh_status::of(&error), status, "{error}");
        }
    }
}
