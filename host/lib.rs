//! warpheap, the host side.

#[cfg(not(loom))]
pub mod simt;
