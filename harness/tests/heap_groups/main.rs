//! The heap's functions for warps and blocks, and the block cache: on the CPU in parallel mode and
//! replayed under many seeds, and on a GPU if there is one.
#![cfg(not(loom))]

mod cache;
mod share;
mod support;
