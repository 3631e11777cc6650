//! Suites: times over the number of threads and over sizes, durations of single calls, and Rust's
//! collections, each beside CUDA's own `malloc` in the same run, and the heap over its load.
//!
//! A suite has a fixed extent and a time limit. What does not fit into memory or time is left out,
//! and the report says so. On the CPU the threads are simulated, and CUDA's `malloc` is left out.
//!
//! | file | what |
//! |---|---|
//! | `extent` | numbers of threads, sizes and limits of each suite |
//! | `contenders`, `malloc` | what is measured |
//! | `series` | times over the number of threads and over sizes |
//! | `situations`, `calls`, `latency`, `distribution` | durations of single calls |
//! | `collections` | Rust's collections over both allocators |
//! | `aging` | fills and turns of a heap over its load; drift from size to size |
//! | `targets` | figures with targets, from the other results |

mod aging;
mod calls;
mod collections;
mod contenders;
mod distribution;
mod extent;
mod latency;
mod malloc;
mod report;
mod run;
mod series;
mod situations;
mod targets;
#[cfg(test)]
mod tests;

pub use aging::{Drift, Fill, HeapLoad, MOST_HEAP_BYTES, Survivors, Turn};
pub use distribution::{Bin, Distribution};
pub use latency::Latency;
pub use report::{Collection, Operation, Over, Point, Series, Suite, SuiteReport};
pub use run::{SuiteConfig, kernels, run};
