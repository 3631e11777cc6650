//! Cost of the pools, compared with the driver's synchronous memory and, where available, the
//! driver's own pool.
//!
//! | figure | what |
//! |---|---|
//! | `pair of 1 MiB`, `pair of 256 B to 64 MiB` | an allocation and its free |
//! | `random to 1 MiB`, `random to 64 MiB` | RMM's benchmark: time, and memory held |
//!
//! Pairs are made by one host thread, and by many with a stream each. Random allocations are those
//! of RMM's benchmark.
//!
//! No first use is timed: every pool is warmed up by the same calls that are timed afterwards.

mod bars;
mod comparison;
mod config;
mod pairs;
mod random;
mod report;
mod run;
#[cfg(test)]
mod tests;

pub use comparison::{Comparison, Judged};
pub use config::{ALLOCATIONS, CAP, PoolBenchConfig};
pub use pairs::PairFigure;
pub use random::RandomFigure;
pub use report::PoolBenchReport;
pub use run::{names, run};
