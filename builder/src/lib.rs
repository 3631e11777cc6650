//! Builds a Rust kernel crate to PTX with stock rustc.
