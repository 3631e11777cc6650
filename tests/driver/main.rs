//! The driver layer on every available backend, one property per file.
#![cfg(not(loom))]

mod arguments;
mod copies;
mod cubins;
mod devices;
mod events;
mod growable;
mod held;
mod kernel_arguments;
mod kernels;
mod lifetimes;
mod memory;
mod modules;
mod stacks;
mod streams;
mod support;
mod watchdog;
