//! The error type of the harness.

/// A result with the error type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run of the harness ended early.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The library or the device failed.
    #[error(transparent)]
    Library(#[from] warpheap::Error),

    /// A stress run is impossible with these settings. Change them as `advice` says.
    #[error("cannot stress {what}: {advice}")]
    InvalidStress {
        /// The rejected setting.
        what: String,
        /// How to fix it.
        advice: String,
    },

    /// A measured kernel computed a wrong result. Its time means nothing.
    #[error("{what}: the results are wrong: {found}")]
    WrongResult {
        /// What was measured.
        what: String,
        /// What was found.
        found: String,
    },
}

impl Error {
    pub(crate) fn invalid_stress(what: String, advice: impl Into<String>) -> Error {
        Error::InvalidStress { what, advice: advice.into() }
    }

    pub(crate) fn wrong(what: impl Into<String>, found: String) -> Error {
        Error::WrongResult { what: what.into(), found }
    }

    /// Whether the device is unusable: see [`warpheap::Error::is_fatal`].
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Error::Library(error) if error.is_fatal())
    }
}
