//! Why a call failed: its status and its text.

use crate::status::wh_status::{self, *};
use host::Error;
use std::any::Any;

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
