//! Measurable figures, and the kernels that each launches.

use super::context::Bench;
use super::figure::Figure;
use super::timing;
use crate::Result;

type Measure = Box<dyn Fn(&Bench, &str) -> Result<Figure>>;

/// A measurable figure.
pub(super) struct Plan {
    pub name: String,
    /// Kernels that it launches, in addition to those of the timing. A launch of any other kernel
    /// is rejected.
    launched: &'static [&'static str],
    measure: Measure,
}

impl Plan {
    pub fn new(
        name: impl Into<String>,
        launched: &'static [&'static str],
        measure: impl Fn(&Bench, &str) -> Result<Figure> + 'static,
    ) -> Plan {
        Plan { name: name.into(), launched, measure: Box::new(measure) }
    }

    /// All kernels that it launches.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.launched.iter().chain(&timing::LAUNCHED).copied()
    }

    pub fn measure(&self, bench: &Bench) -> Result<Figure> {
        (self.measure)(bench, &self.name)
    }
}
