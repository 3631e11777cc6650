//! What changed between results of the same measurements on the same device.
//!
//! A measurement changed if both hold: the ranges of its rounds do not overlap, and its median
//! differs by more than a threshold. It is also worse if more of its operations failed. Floors and
//! the driver's own allocators are listed, but their changes are no verdict on this library.

mod change;
mod measurements;
#[cfg(test)]
mod tests;

pub use change::{Change, FEWEST_ROUNDS, Verdict};
pub use measurements::Measurement;

use super::provenance::Origin;
use super::results::{Data, Results};
use measurements::{measurements, wrong};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Results of another command.
    #[error("cannot compare with {file}: it has the results of `{old}`, but these are of `{new}`")]
    Kind {
        /// The older file.
        file: String,
        /// Kind of its results.
        old: String,
        /// Kind of the newer results.
        new: String,
    },
    /// A measurement that occurs more than once.
    #[error(
        "cannot compare {file}: the measurement `{name}` occurs more than once; compare one result of it"
    )]
    Twice {
        /// The older file, or the newer ones.
        file: String,
        /// The measurement.
        name: String,
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
    pub results: Results,
    /// The smallest change of a median that counts, as a fraction.
    pub threshold: f64,
}

/// A part of the machine or the program that affects times, and is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What differs, in the plural.
    pub what: &'static str,
    /// The older one.
    pub old: String,
    /// The newer one.
    pub new: String,
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
    /// The newer entries of wrong results, for measurements that had none before.
    pub wrong: Vec<String>,
    /// Names of the measurements that only the older results have.
    pub only_old: Vec<String>,
    /// Number of measurements that only the newer results have.
    pub only_new: usize,
    /// What else differs, and affects times.
    pub differences: Vec<Difference>,
}

impl Old {
    /// Fails unless results of `device` can be compared with these.
    pub fn check_device(&self, device: &str) -> Result<(), Error> {
        let old = self.results.device();
        if old == device {
            return Ok(());
        }
        Err(Error::Device { file: self.file.clone(), old: old.into(), new: device.into() })
    }

    /// Fails unless results of `kind` can be compared with these.
    pub fn check_kind(&self, kind: &str) -> Result<(), Error> {
        let old = &self.results.origin.kind;
        if old == kind {
            return Ok(());
        }
        Err(Error::Kind { file: self.file.clone(), old: old.clone(), new: kind.into() })
    }

    /// Compares newer results of the same kind with these.
    pub fn compare(&self, results: &[Results]) -> Result<Comparison, Error> {
        let is_same = |one: &&Results| self.check_kind(&one.origin.kind).is_ok();
        let new: Vec<&Results> = results.iter().filter(is_same).collect();
        if let (true, Some(first)) = (new.is_empty(), results.first()) {
            self.check_kind(&first.origin.kind)?;
        }
        new.iter().try_for_each(|one| self.check_device(one.device()))?;
        let before = once(&self.file, measurements(&self.results))?;
        let after = new.iter().flat_map(|one| measurements(one)).collect();
        let after = once("the newer results", after)?;
        let mut unmatched: BTreeMap<&str, &Measurement> =
            before.iter().map(|one| (&*one.name, one)).collect();
        let (mut changes, mut only_new) = (Vec::new(), 0);
        for one in after {
            match unmatched.remove(&*one.name) {
                Some(old) => changes.push(Change::of(old.clone(), one, self.threshold)),
                None => only_new += 1,
            }
        }
        let only_old = before.iter().filter(|one| unmatched.contains_key(&*one.name));
        let only_old = only_old.map(|one| one.name.clone()).collect();
        let wrong = newly_wrong(&self.results, &new);
        if changes.is_empty() && wrong.is_empty() {
            return Err(Error::Nothing { file: self.file.clone() });
        }
        let origin = &self.results.origin;
        Ok(Comparison {
            file: self.file.clone(),
            old: (origin.commit.clone(), origin.date.clone()),
            threshold: self.threshold,
            changes,
            wrong,
            only_old,
            only_new,
            differences: differences(&self.results, &new),
        })
    }
}

/// The drivers, the kernels and, for times of the host, the processors that differ.
fn differences(old: &Results, new: &[&Results]) -> Vec<Difference> {
    let has_host_times = old.is_simulated() || matches!(old.data, Data::Pools(_));
    let parts = |one: &Results| {
        let Origin { driver, kernels, host, .. } = &one.origin;
        let processor = host.as_ref().and_then(|host| host.cpu.as_ref());
        let parts = [driver.as_ref(), kernels.as_ref(), processor];
        parts.map(|part| part.map_or("none", String::as_str).to_owned())
    };
    let (old, new): (_, Vec<_>) = (parts(old), new.iter().map(|one| parts(one)).collect());
    let names = ["drivers", "kernels", "processors"];
    let compared = names.into_iter().zip(old).enumerate().take(if has_host_times { 3 } else { 2 });
    let difference = |(index, (what, old)): (usize, (_, String))| {
        let new = new.iter().map(|parts| &parts[index]).find(|new| **new != old)?.clone();
        Some(Difference { what, old, new })
    };
    compared.filter_map(difference).collect()
}

/// The newer entries of `wrong` of measurements that have no older one. An entry begins with the
/// name of its measurement.
fn newly_wrong(old: &Results, new: &[&Results]) -> Vec<String> {
    let name = |entry: &str| entry.split(": ").next().unwrap_or_default().to_owned();
    let before: BTreeSet<String> = wrong(old).iter().map(|entry| name(entry)).collect();
    let entries = new.iter().flat_map(|one| wrong(one));
    entries.filter(|entry| !before.contains(&name(entry))).cloned().collect()
}

/// These measurements, unless two have the same name.
fn once(file: &str, all: Vec<Measurement>) -> Result<Vec<Measurement>, Error> {
    let mut names = BTreeSet::new();
    match all.iter().find(|one| !names.insert(&one.name)) {
        Some(one) => Err(Error::Twice { file: file.into(), name: one.name.clone() }),
        None => Ok(all),
    }
}

impl Comparison {
    /// The measurements that changed, the worst first.
    pub fn changed(&self) -> Vec<&Change> {
        let mut changed: Vec<_> = self.changes.iter().filter(|one| one.is_change()).collect();
        let order = |one: &Change| {
            let ratio = one.ratio().unwrap_or(f64::INFINITY);
            let worse = if one.new.is_lower_better { ratio } else { 1.0 / ratio };
            (one.verdict != Verdict::Worse, !one.has_more_failures(), -worse)
        };
        changed.sort_by(|one, other| {
            let (one, other) = (order(one), order(other));
            (one.0, one.1).cmp(&(other.0, other.1)).then(one.2.total_cmp(&other.2))
        });
        changed
    }

    /// Names of the measurements with too few rounds for a verdict.
    pub fn too_few(&self) -> Vec<&str> {
        let too_few = self.changes.iter().filter(|one| one.verdict == Verdict::TooFewRounds);
        too_few.map(|one| &*one.new.name).collect()
    }

    /// Whether a measurement of this library became worse.
    pub fn is_worse(&self) -> bool {
        !self.wrong.is_empty() || self.changes.iter().any(Change::is_worse)
    }

    /// `31 measurements: 3 worse, 9 better, 18 the same, 1 with too few rounds`
    pub fn summary(&self) -> String {
        let count = |is_counted: &dyn Fn(&Change) -> bool| {
            self.changes.iter().filter(|change| is_counted(change)).count()
        };
        let of = |verdict| count(&|one| one.verdict == verdict);
        let worse = count(&Change::is_worse);
        let some = |count: usize, what: &str| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        format!(
            "{} measurements: {worse} worse, {} better, {} the same{}{}{}",
            self.changes.len(),
            of(Verdict::Better),
            of(Verdict::Same),
            some(of(Verdict::Worse) - worse, "references slower"),
            some(of(Verdict::TooFewRounds), "with too few rounds"),
            some(self.wrong.len(), "now wrong"),
        )
    }
}
