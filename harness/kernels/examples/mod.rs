//! Example kernels: data structures whose size is unknown before they run.
//!
//! [`vectors`] uses Rust's own collections, which allocate from the module's global heap. All
//! threads of a grid share the others, which take the heap, or any other allocator, as an argument.

pub mod graph;
mod node;
pub mod octree;
pub mod table;
pub mod vectors;
