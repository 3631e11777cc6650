//! warpheap, the command line.
fn main() {}
