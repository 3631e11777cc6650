//! The data of `warpheap pool bench`.

use serde::Deserialize;

/// All figures of pools.
#[derive(Clone, Debug, Deserialize)]
pub struct Pools {
    /// Timed rounds of each pair.
    pub rounds: u64,
    /// Times of a pair of an allocation and a free.
    #[serde(default)]
    pub pairs: Vec<Pair>,
    /// Times of random allocations.
    #[serde(default)]
    pub random: Vec<Random>,
    /// What was left out.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Figures whose results were wrong.
    #[serde(default)]
    pub wrong: Vec<String>,
}

/// The time of a pair with one pool.
#[derive(Clone, Debug, Deserialize)]
pub struct Pair {
    /// Name of the figure.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// Host threads.
    pub threads: u64,
    /// The times.
    pub ns: Nanos,
    /// Speedup over the driver's synchronous memory.
    #[serde(default)]
    pub driver_ratio: Option<f64>,
    /// The targets.
    #[serde(default)]
    pub bars: Vec<Judged>,
}

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Nanos {
    /// The median round.
    pub median: f64,
    /// The slowest round.
    pub max: f64,
    /// The fastest round.
    pub min: f64,
}

/// The time of random allocations with one pool.
#[derive(Clone, Debug, Deserialize)]
pub struct Random {
    /// Name of the figure.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// The mean time of a call.
    pub call_ns: f64,
    /// Speedup over the driver's synchronous memory.
    #[serde(default)]
    pub driver_ratio: Option<f64>,
    /// The targets.
    #[serde(default)]
    pub bars: Vec<Judged>,
}

/// A target of a pool.
#[derive(Clone, Debug, Deserialize)]
pub struct Judged {
    /// Whether it is met.
    pub met: bool,
}
