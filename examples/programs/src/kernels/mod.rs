//! The kernels of the programs. The build script compiles this module to PTX, and the library
//! compiles it for the CPU.
//!
//! [`vectors`] uses Rust's own collections, which allocate from the module's global heap. The
//! kernels of [`fill`] and [`mod@square`] get memory from the host, those of [`pools`] take a pool
//! as an argument, and the others a heap.

pub mod fill;
pub mod graph;
pub mod list;
pub mod mailbox;
mod node;
pub mod octree;
pub mod pools;
pub mod square;
pub mod table;
pub mod vectors;

warpheap_device::global_heap!();
