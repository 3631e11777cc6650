//! The measured figures of all pools.

use super::comparison::Judged;
use super::pairs::PairFigure;
use super::random::RandomFigure;
use serde::{Deserialize, Serialize};

/// The measured figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolBenchReport {
    /// Timed rounds of each pair.
    pub rounds: u32,
    /// Maximum live bytes of the random allocations.
    pub cap_bytes: u64,
    /// Determines all sizes.
    pub seed: u64,
    /// Whether the bars are judged: on a GPU only.
    pub has_bars: bool,
    /// In the order of measurement.
    pub pairs: Vec<PairFigure>,
    /// In the order of measurement.
    pub random: Vec<RandomFigure>,
    /// Figures that a pool does not support, and why.
    pub left_out: Vec<String>,
    /// Faults of the pools.
    pub wrong: Vec<String>,
}

impl PoolBenchReport {
    /// Whether nothing was measured or left out, which means that no figure has the requested name.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.random.is_empty() && self.left_out.is_empty() && self.wrong.is_empty()
    }

    /// All judged bars: the pool's name, whether the bar applies to it, and the result.
    pub fn judged(&self) -> impl Iterator<Item = (&str, bool, &Judged)> {
        let pairs = self.pairs.iter().map(|figure| (&*figure.pool, &figure.comparison));
        let random = self.random.iter().map(|figure| (&*figure.pool, &figure.comparison));
        let all = pairs.chain(random);
        all.flat_map(|(pool, of)| of.bars.iter().map(move |bar| (pool, of.has_bars, bar)))
    }
}
