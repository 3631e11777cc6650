//! A measurement before and after, and the verdict on it.

use super::Measurement;
use crate::report::human::{Count, Unit};

/// The fewest rounds with a verdict: with fewer, ranges often do not overlap by chance.
pub const FEWEST_ROUNDS: u32 = 5;

/// The verdict on a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Worse, beyond noise and threshold, or more operations failed.
    Worse,
    /// Better, beyond noise and threshold.
    Better,
    /// Within noise or threshold.
    Same,
    /// Measured in fewer than [`FEWEST_ROUNDS`], before or after.
    TooFewRounds,
}

/// A measurement before and after.
#[derive(Clone, Debug)]
pub struct Change {
    /// The older one.
    pub old: Measurement,
    /// The newer one.
    pub new: Measurement,
    /// The verdict.
    pub verdict: Verdict,
}

impl Change {
    pub(super) fn of(old: Measurement, new: Measurement, threshold: f64) -> Change {
        let has_few = |one: &Measurement| one.rounds.is_some_and(|rounds| rounds < FEWEST_ROUNDS);
        let is_noise = new.range.0 <= old.range.1 && old.range.0 <= new.range.1;
        let (small, large) = (old.value.min(new.value), old.value.max(new.value));
        let is_small = large <= small * (1.0 + threshold);
        let verdict = match (new.value > old.value) == new.is_lower_better {
            _ if new.failed > old.failed => Verdict::Worse,
            _ if has_few(&old) || has_few(&new) => Verdict::TooFewRounds,
            _ if is_noise || is_small => Verdict::Same,
            true => Verdict::Worse,
            false => Verdict::Better,
        };
        Change { old, new, verdict }
    }

    /// Whether it has a verdict other than the same.
    pub fn is_change(&self) -> bool {
        matches!(self.verdict, Verdict::Worse | Verdict::Better)
    }

    /// Whether it is worse, and measures this library.
    pub fn is_worse(&self) -> bool {
        self.verdict == Verdict::Worse && !self.new.is_reference
    }

    /// Whether more operations failed than before.
    pub fn has_more_failures(&self) -> bool {
        self.new.failed > self.old.failed
    }

    /// The newer value over the older one; `None` for a change from zero.
    pub fn ratio(&self) -> Option<f64> {
        (self.old.value > 0.0).then(|| self.new.value / self.old.value)
    }

    /// The change of the value: `+12.3 %`, from the double on `+250 %`, from ten times on `12.5 ×`.
    pub fn percent(&self) -> String {
        match self.ratio() {
            None => "from 0".into(),
            Some(ratio) if ratio >= 10.0 => Unit::Ratio.text(ratio),
            Some(ratio) if ratio >= 2.0 => format!("{:+.0} %", 100.0 * (ratio - 1.0)),
            Some(ratio) => format!("{:+.1} %", 100.0 * (ratio - 1.0)),
        }
    }

    /// The verdict in words.
    pub fn word(&self) -> &'static str {
        match (self.verdict, self.has_more_failures()) {
            (Verdict::Worse, true) if self.new.is_reference => "more failed",
            (Verdict::Worse, false) if self.new.is_reference => "slower",
            (Verdict::Worse, true) => "MORE FAILED",
            (Verdict::Worse, false) => "WORSE",
            (Verdict::Better, _) => "better",
            (Verdict::Same, _) => "same",
            (Verdict::TooFewRounds, _) => "too few rounds",
        }
    }

    /// Values before and after: `7.2 µs`, `7.2 µs, 12 failed`.
    pub fn texts(&self) -> [String; 2] {
        [&self.old, &self.new].map(|one| {
            let value = Unit::named(one.unit).text(one.value);
            if one.failed == 0 { value } else { format!("{value}, {} failed", Count(one.failed)) }
        })
    }
}
