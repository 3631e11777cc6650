//! Stress runs of this library's allocators and of third-party ones.

#[path = "../support/failing.rs"]
mod failing;
mod library;
mod own;
#[path = "../support/slots.rs"]
mod slots;
mod support;
