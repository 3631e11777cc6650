//! What changed between results of the same measurements on the same device.
//!
//! A measurement changed if both hold: the ranges of its rounds do not overlap, and its median
//! differs by more than a threshold. Floors and the driver's own allocators are listed, but their
//! changes are no verdict on this library.

mod measurements;
#[cfg(test)]
mod tests;

pub use measurements::Measurement;

use super::chart::units::Unit;
use super::saved::Saved;
use measurements::measurements;
use std::collections::BTreeMap;

/// Why results cannot be compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another device.
    #[error(
        "cannot compare with {file}: it was measured on `{old}`, but these results on `{new}`; compare results of one device"
    )]
    Device {
        /// The older file.
        file: String,
        /// Its device.
        old: String,
        /// The device of the newer results.
        new: String,
    },
    /// Other measurements.
    #[error(
        "cannot compare with {file}: it has no measurement in common with these results; compare results of the same command and figures"
    )]
    Nothing {
        /// The older file.
        file: String,
    },
}

/// Older results.
#[derive(Clone, Debug)]
pub struct Old {
    /// Name of the file.
    pub file: String,
    /// The results.
    pub saved: Saved,
    /// The smallest change of a median that counts, as a fraction.
    pub threshold: f64,
}

/// The verdict on a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Worse, beyond noise and threshold.
    Worse,
    /// Better, beyond noise and threshold.
    Better,
    /// Within noise or threshold.
    Same,
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

/// All measurements before and after.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The file of the older results.
    pub file: String,
    /// Its commit and its date.
    pub old: (String, String),
    /// The smallest change of a median that counts, as a fraction.
    pub threshold: f64,
    /// The measurements that both have.
    pub changes: Vec<Change>,
    /// Number of measurements that only the older results have.
    pub only_old: usize,
    /// Number of measurements that only the newer results have.
    pub only_new: usize,
    /// A difference of the drivers: older and newer version.
    pub drivers: Option<(String, String)>,
}

impl Old {
    /// Fails unless results of `device` can be compared with these.
    pub fn check_device(&self, device: &str) -> Result<(), Error> {
        let old = self.saved.device();
        if old == device {
            return Ok(());
        }
        Err(Error::Device { file: self.file.clone(), old: old.into(), new: device.into() })
    }

    /// Compares newer results of the same kind with these.
    pub fn compare(&self, new: &[Saved]) -> Result<Comparison, Error> {
        let kind = &self.saved.origin.kind;
        let new: Vec<&Saved> = new.iter().filter(|one| one.origin.kind == *kind).collect();
        new.iter().try_for_each(|one| self.check_device(one.device()))?;
        let mut before: BTreeMap<String, Measurement> =
            measurements(&self.saved).into_iter().map(|one| (one.name.clone(), one)).collect();
        let (mut changes, mut only_new) = (Vec::new(), 0);
        for one in new.iter().flat_map(|one| measurements(one)) {
            match before.remove(&one.name) {
                Some(old) => changes.push(Change::of(old, one, self.threshold)),
                None => only_new += 1,
            }
        }
        if changes.is_empty() {
            return Err(Error::Nothing { file: self.file.clone() });
        }
        let driver = |one: &Saved| one.origin.driver.clone().unwrap_or_else(|| "none".into());
        let drivers = new.iter().map(|one| (driver(&self.saved), driver(one))).find(|(old, new)| old != new);
        let origin = &self.saved.origin;
        Ok(Comparison {
            file: self.file.clone(),
            old: (origin.commit.clone(), origin.date.clone()),
            threshold: self.threshold,
            changes,
            only_old: before.len(),
            only_new,
            drivers,
        })
    }
}

impl Change {
    fn of(old: Measurement, new: Measurement, threshold: f64) -> Change {
        let is_noise = new.range.0 <= old.range.1 && old.range.0 <= new.range.1;
        let (small, large) = (old.value.min(new.value), old.value.max(new.value));
        let is_small = large <= small * (1.0 + threshold);
        let verdict = match (new.value > old.value) == new.is_lower_better {
            _ if is_noise || is_small => Verdict::Same,
            true => Verdict::Worse,
            false => Verdict::Better,
        };
        Change { old, new, verdict }
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

    /// The verdict as a word.
    pub fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Worse if self.new.is_reference => "slower",
            Verdict::Worse => "WORSE",
            Verdict::Better => "better",
            Verdict::Same => "same",
        }
    }

    /// Values before and after.
    pub fn texts(&self) -> [String; 2] {
        let unit = Unit::named(self.new.unit);
        [self.old.value, self.new.value].map(|value| unit.text(value))
    }
}

impl Comparison {
    /// The measurements that changed, the worst first.
    pub fn changed(&self) -> Vec<&Change> {
        let mut changed: Vec<_> = self.changes.iter().filter(|one| one.verdict != Verdict::Same).collect();
        let order = |one: &Change| {
            let ratio = one.ratio().unwrap_or(f64::INFINITY);
            let worse = if one.new.is_lower_better { ratio } else { 1.0 / ratio };
            (one.verdict != Verdict::Worse, -worse)
        };
        changed.sort_by(|one, other| {
            let ((one, worse), (other, more)) = (order(one), order(other));
            one.cmp(&other).then(worse.total_cmp(&more))
        });
        changed
    }

    /// Whether a measurement of this library became worse.
    pub fn is_worse(&self) -> bool {
        self.changes.iter().any(|one| one.verdict == Verdict::Worse && !one.new.is_reference)
    }

    /// `3 worse, 9 better and 18 the same of 30 measurements`
    pub fn summary(&self) -> String {
        let count = |verdict: Verdict, is_reference: bool| {
            let is_counted = |one: &&Change| {
                one.verdict == verdict && (one.new.is_reference && verdict == Verdict::Worse) == is_reference
            };
            self.changes.iter().filter(is_counted).count()
        };
        let [worse, better, same] =
            [Verdict::Worse, Verdict::Better, Verdict::Same].map(|verdict| count(verdict, false));
        let references = match count(Verdict::Worse, true) {
            0 => String::new(),
            references => format!(", {references} references slower"),
        };
        format!(
            "{} measurements: {worse} worse, {better} better, {same} the same{references}",
            self.changes.len()
        )
    }
}
