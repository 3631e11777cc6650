//! The exit status.

use std::fmt;
use warpheap::Error as LibraryError;
use warpheap::error::KernelFault;
use warpheap::simt::SimtError;
use warpheap_harness::Error;

/// The exit status, as documented by `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Success.
    Clean = 0,
    /// A fault was found, or a figure missed its target.
    Fault = 1,
    /// The arguments are invalid or not supported. Also the status of clap's own errors.
    Usage = 2,
    /// There is no usable device.
    NoDevice = 3,
    /// A kernel did not end.
    Hung = 4,
    /// The machine or the driver failed.
    Failed = 5,
    /// The user ended the run. Shells add 128 to the number of the signal.
    Interrupted = 130,
}

impl Status {
    /// The worse of the status of a run and that of its outputs. Results that cannot be compared
    /// hide no fault of the run; an output that cannot be written does.
    pub fn worse(self, output: Status) -> Status {
        match (self, output) {
            (Status::Clean, _) | (Status::Fault, Status::Failed) => output,
            _ => self,
        }
    }
}

/// An error that ends the program.
#[derive(Debug)]
pub struct Failure {
    /// Exit status of the process.
    pub status: Status,
    /// Message for people.
    pub message: String,
}

impl Failure {
    /// An invalid request.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { status: Status::Usage, message: message.to_string() }
    }

    /// Wraps the message.
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
            LibraryError::KernelFault(_) => Status::Fault,
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
