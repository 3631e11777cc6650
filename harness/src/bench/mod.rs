//! Benchmark figures: the time of the pools' operations on a GPU, each next to its floor: the same
//! kernel without the pool.
//!
//! A kernel that spins for 40 µs precedes every timed kernel. The host's launch latency has thus
//! passed when the timed kernel starts. A figure is the median of its rounds after warm-up, and its
//! results are checked.

mod churn;
mod context;
mod heap;
mod load;
mod pools;
mod results;
mod run;
pub mod suite;
#[cfg(test)]
mod tests;
mod timing;

pub use crate::summary::Timing;
pub use results::{Bar, BenchReport, Comparison, Figure};
pub use run::{BenchConfig, kernels, run};
