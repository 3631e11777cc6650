//! Suites: times over the number of threads and over sizes, durations of single calls, and Rust's
//! collections, each beside CUDA's own `malloc` in the same run, and the heap over its load.
//!
//! A suite has a fixed extent and a time limit. What does not fit into memory or time is left out,
//! and the report says so. On the CPU the threads are simulated, and CUDA's `malloc` is left out.
//!
//! | file | what |
//! |---|---|
//! | `extent` | numbers of threads, sizes and limits of each suite |
//! | `malloc`, `contenders` | what is measured |
//! | `results` | the results of a running suite |
//! | `series` | times over the number of threads and over sizes |
//! | `situations`, `calls`, `latency` | durations of single calls |
//! | `collections` | Rust's collections over both allocators |
//! | `aging` | fills and turns of a heap over its load; drift from size to size |
//! | `targets` | figures with targets, from the other results |

mod aging;
mod calls;
mod collections;
mod contenders;
mod extent;
mod latency;
mod malloc;
mod results;
mod run;
mod series;
mod situations;
mod targets;
#[cfg(test)]
mod tests;

pub use super::results::{
    Bin, Collection, Distribution, Drift, Fill, HeapLoad, Latency, Operation, Over, Point, Series, Suite,
    SuiteReport, Survivors, Turn,
};
pub use aging::MOST_HEAP_BYTES;
pub use run::{SuiteConfig, kernels, run};
