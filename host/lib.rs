//! warpheap, the host side.

pub mod build_info;
