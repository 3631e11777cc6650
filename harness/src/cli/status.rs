//! How a run can end.

use std::fmt;
use warpheap::Error as LibraryError;
use warpheap::error::KernelFault;
use warpheap::simt::SimtError;
use warpheap_harness::Error;

/// The exit status, as `--help` explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Everything was done and nothing is wrong.
    Clean = 0,
    /// A fault was found, or a figure missed its bar.
    Fault = 1,
    /// What was asked cannot be done. The status of clap's own errors, too.
    Usage = 2,
    /// There is no device to run on.
    NoDevice = 3,
    /// A kernel did not end.
    Hung = 4,
    /// The machine or the driver let the run down.
    Failed = 5,
    /// The user ended the run. Shells add 128 to the number of the signal.
    Interrupted = 130,
}

/// Why a run ended early.
#[derive(Debug)]
pub struct Failure {
    /// What the process exits with.
    pub status: Status,
    /// For people.
    pub message: String,
}

impl Failure {
    /// Something that was asked for makes no sense.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { status: Status::Usage, message: message.to_string() }
    }

    /// The same with another message around it.
    pub fn with(self, message: impl FnOnce(String) -> String) -> Failure {
        Failure { message: message(self.message), ..self }
    }
}

impl From<LibraryError> for Failure {
    fn from(error: LibraryError) -> Failure {
        let status = match &error {
            LibraryError::NoDevice { .. } => Status::NoDevice,
            LibraryError::InvalidConfig(_) => Status::Usage,
            LibraryError::KernelFault(KernelFault::Simt {
                source: SimtError::Deadlock { .. } | SimtError::StepLimit { .. },
                ..
            }) => Status::Hung,
            error if error.is_fatal() => Status::Fault,
            _ => Status::Failed,
        };
        Failure { status, message: error.to_string() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match error {
            Error::Library(error) => return error.into(),
            Error::InvalidStress { .. } => Status::Usage,
            Error::WrongResult { .. } => Status::Fault,
            _ => Status::Failed,
        };
        Failure { status, message: error.to_string() }
    }
}
