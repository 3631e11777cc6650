//! What needs an operating system: types and functions that the tests mention, without effect.

/// `std::env`.
pub mod env {
    use alloc_crate::string::String;

    /// No variable is set.
    #[derive(Clone, Copy, Debug)]
    pub struct VarError;

    /// The value of the variable `name`.
    pub fn var(_name: &str) -> Result<String, VarError> {
        Err(VarError)
    }
}

/// `std::ffi`.
pub mod ffi {
    pub use alloc_crate::ffi::{CString, FromVecWithNulError, IntoStringError, NulError, c_str};
    pub use core::ffi::{CStr, FromBytesUntilNulError, FromBytesWithNulError, c_char, c_int};

    /// Is only named.
    #[derive(Debug)]
    pub struct OsStr;
}

/// `std::fs`.
pub mod fs {
    use core::fmt::Error;

    /// Fails.
    pub fn write(_name: impl AsRef<str>, _contents: impl AsRef<[u8]>) -> Result<(), Error> {
        Err(Error)
    }
}

/// `std::os`.
#[allow(clippy::module_inception)]
pub mod os {
    /// `std::os::raw`.
    pub mod raw {
        pub use core::ffi::*;
    }
}

/// `std::path`.
pub mod path {
    /// Is only named.
    #[derive(Debug)]
    pub struct Path;
}

/// `std::time`.
pub mod time {
    pub use core::time::*;

    /// The start of the epoch.
    pub const UNIX_EPOCH: SystemTime = SystemTime;

    /// A time: always the start of the epoch.
    #[derive(Clone, Copy, Debug)]
    pub struct SystemTime;

    impl SystemTime {
        /// The time.
        pub fn now() -> Self {
            SystemTime
        }

        /// The time since `earlier`.
        pub fn duration_since(&self, _earlier: SystemTime) -> Result<Duration, core::fmt::Error> {
            Ok(Duration::ZERO)
        }
    }
}

/// The methods of `f64` that `core` lacks.
#[allow(missing_docs)]
pub trait Float {
    fn exp(self) -> Self;
    fn floor(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn exp_m1(self) -> Self;
    fn log(self, base: Self) -> Self;
    fn log2(self) -> Self;
    fn powf(self, exponent: Self) -> Self;
    fn round(self) -> Self;
    fn sqrt(self) -> Self;
}

impl Float for f64 {
    fn exp(self) -> f64 {
        libm::exp(self)
    }

    fn floor(self) -> f64 {
        libm::floor(self)
    }

    fn ln(self) -> f64 {
        libm::log(self)
    }

    fn ln_1p(self) -> f64 {
        libm::log1p(self)
    }

    fn exp_m1(self) -> f64 {
        libm::expm1(self)
    }

    fn log(self, base: f64) -> f64 {
        self.ln() / base.ln()
    }

    fn log2(self) -> f64 {
        libm::log2(self)
    }

    fn powf(self, exponent: f64) -> f64 {
        libm::pow(self, exponent)
    }

    fn round(self) -> f64 {
        libm::round(self)
    }

    fn sqrt(self) -> f64 {
        libm::sqrt(self)
    }
}
