//! Stress runs of this library's allocators and of third-party ones.

#[path = "../support/failing.rs"]
mod failing;
mod library;
#[path = "../support/slots.rs"]
mod slots;
mod support;
mod third_party;
