//! The driver layer, on every backend that there is: one property a file.
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
