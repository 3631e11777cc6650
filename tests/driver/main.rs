//! The driver layer on every available backend, one property per file.
#![cfg(not(loom))]

mod arguments;
mod copies;
mod devices;
mod events;
mod held;
#[allow(dead_code, reason = "`fill` is launched by other tests only")]
mod kernels;
mod lifetimes;
mod memory;
mod modules;
mod streams;
mod support;
mod watchdog;
