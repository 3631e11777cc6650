//! warpheap, the host side.
