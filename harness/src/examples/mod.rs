//! Data structures that kernels build, use and free. Each is checked against a simple computation
//! on the host.
//!
//! The kernels are in `harness/kernels/examples`. After each example the heap must be empty: no
//! misuse was recorded, no allocation failed, and one allocation of all its memory succeeds.

mod context;
mod graph;
mod octree;
mod run;
mod table;
mod vectors;

pub use run::{ExampleReport, ExamplesConfig, kernels, names, run};
