//! `std::hash`.

pub use core::hash::*;

/// The hasher of `std`, with the keys 0 and 0.
#[allow(deprecated)]
pub type DefaultHasher = SipHasher13;

/// Builds hashers that are all the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomState;

impl RandomState {
    /// The state.
    pub fn new() -> Self {
        RandomState
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher::new()
    }
}
