//! What the bindings for C and for Python share, so that both behave alike.
//!
//! ```text
//!   libwarpheap (bindings/c/host)      the Python package (bindings/python)
//!            \                          /
//!             pool, heap, device_library
//!              |
//!             streams      a raw handle -> the stream
//!              |
//!             lock
//! ```
#![cfg(not(loom))]

pub mod device_library;
pub mod heap;
pub mod lock;
pub mod pool;
pub mod streams;

pub use pool::RawPool;
pub use streams::RawStreams;

/// The builder with a setting, if it is given.
pub fn set<B, T>(builder: B, value: Option<T>, setter: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => setter(builder, value),
        None => builder,
    }
}
