//! The driver layer on every available backend, one property per file.
#![cfg(not(loom))]

mod arguments;
mod copies;
mod devices;
mod growable;
mod held;
mod kernel_arguments;
mod kernels;
mod lifetimes;
mod memory;
mod modules;
mod streams;
mod support;
mod watchdog;
