//! Example kernels: data structures whose size is unknown before they run.
//!
//! [`vectors`] and [`collections`] use Rust's own collections, which allocate from the module's
//! global heap. The other structures are shared by all threads of a grid, and take the heap or
//! another allocator as an argument.

pub mod collections;
pub mod graph;
mod node;
pub mod octree;
pub mod table;
pub mod vectors;
