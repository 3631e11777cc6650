//! What changed between results of the same measurements on the same device.
//!
//! A measurement changed if both hold: the ranges of its rounds do not overlap, and its median
//! differs by more than a threshold. It is also worse if more of its operations failed. Floors and
//! the driver's own allocators are listed, but their changes are no verdict on this library.

#[cfg(test)]
mod tests;

use super::human::{Count, Unit};
use super::results::{Data, Origin, Results};
use std::collections::{BTreeMap, BTreeSet};
use warpheap_harness::bench::suite::{HeapLoad, Series, SuiteReport};
use warpheap_harness::bench::{Bar, Figure};
use warpheap_harness::pool_tools::bench::{PairFigure, PoolBenchReport};

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
    let before: BTreeSet<String> = old.wrong().iter().map(|entry| name(entry)).collect();
    let entries = new.iter().flat_map(|one| one.wrong());
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
    fn of(old: Measurement, new: Measurement, threshold: f64) -> Change {
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

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// What was measured. It is the same in all results of this measurement.
    pub name: String,
    /// The unit, as in a file of results.
    pub unit: &'static str,
    /// The median.
    pub value: f64,
    /// The fastest and the slowest round; equal without rounds.
    pub range: (f64, f64),
    /// Number of rounds; `None` for a value that is not the median of rounds.
    pub rounds: Option<u32>,
    /// Operations that failed.
    pub failed: u64,
    /// Whether a smaller value is better.
    pub is_lower_better: bool,
    /// Whether it measures a floor, or an allocator of the driver.
    pub is_reference: bool,
}

/// All measurements. Stress runs have none: their rates have no rounds to compare.
fn measurements(saved: &Results) -> Vec<Measurement> {
    match &saved.data {
        Data::Bench(bench) => of_bench(bench),
        Data::Pools(pools) => of_pools(pools),
        Data::Stress(_) => Vec::new(),
    }
}

fn timed(name: String, unit: &'static str, value: f64, range: (f64, f64), rounds: u32) -> Measurement {
    let (rounds, failed) = (Some(rounds), 0);
    Measurement { name, unit, value, range, rounds, failed, is_lower_better: true, is_reference: false }
}

/// The times of figures and series, and values that are not made from times.
fn of_bench(suite: &SuiteReport) -> Vec<Measurement> {
    let rounds = suite.bench.rounds;
    let figures = suite.bench.figures.iter().flat_map(|figure| of_figure(figure, rounds));
    let series = suite.series.iter().flat_map(|series| of_series(series, rounds));
    figures.chain(series).chain(suite.load.iter().flat_map(of_load)).collect()
}

fn of_figure(figure: &Figure, rounds: u32) -> impl Iterator<Item = Measurement> {
    let time = figure
        .time
        .map(|time| timed(time_name(figure), "us", time.median_us, (time.min_us, time.max_us), rounds));
    let unit = match &*figure.unit {
        "%" => Some("%"),
        "ppm" => Some("ppm"),
        _ => None,
    };
    let value = unit.zip(figure.value).map(|(unit, value)| {
        let name = format!("{} ({unit})", figure.name);
        let is_lower_better = figure.holds == Bar::AtMost;
        Measurement { is_lower_better, rounds: None, ..timed(name, unit, value, (value, value), rounds) }
    });
    time.into_iter().chain(value)
}

/// A speedup is measured with as many threads as its base permits, so its name has their number.
fn time_name(figure: &Figure) -> String {
    let is_speedup = figure.unit == "x" && figure.holds == Bar::AtLeast;
    match figure.threads {
        threads if is_speedup && threads > 0 => format!("{}, {} threads", figure.name, Count(threads.into())),
        _ => figure.name.clone(),
    }
}

fn of_series(series: &Series, rounds: u32) -> impl Iterator<Item = Measurement> {
    let unit = if series.unit == "ns" { "ns" } else { "us" };
    let is_reference = series.contender == "floor" || series.contender.starts_with("CUDA");
    let fixed = series.fixed.iter().map(|(name, count)| format!("{} {name}, ", Count(*count)));
    let fixed = fixed.collect::<String>();
    // Times of different numbers of turns are different measurements.
    let turns = if series.turns > 1 { format!(" × {}", series.turns) } else { String::new() };
    series.points.iter().map(move |point| {
        let name = format!(
            "{} {}{turns}, {fixed}{} {}",
            series.contender,
            series.operation,
            Count(point.x),
            series.over
        );
        let rounds = point.rounds.unwrap_or(rounds);
        let time = timed(name, unit, point.median, (point.min, point.max), rounds);
        Measurement { is_reference, failed: point.failed, ..time }
    })
}

/// The median turn at a load, and the share of its allocations that failed: more than before are
/// worse only beyond the threshold, because the sizes of the live blocks are random.
fn of_load(load: &HeapLoad) -> [Measurement; 2] {
    let HeapLoad { heap_bytes, min_bytes, max_bytes, percent, turn, .. } = load;
    let heap = Unit::Bytes.text(*heap_bytes as f64);
    let name = format!("heap turn, {min_bytes}-{max_bytes} B, {heap}, load {percent} %");
    let time = timed(name.clone(), "ns", turn.median_ns, (turn.min_ns, turn.worst_ns), turn.turns);
    let (name, value) = (format!("{name}, failed (%)"), turn.failed_percent);
    [time, Measurement { rounds: None, ..timed(name, "%", value, (value, value), turn.turns) }]
}

fn of_pools(pools: &PoolBenchReport) -> Vec<Measurement> {
    let pair = |pair: &PairFigure| {
        let name = format!("{}, {}, {} host threads", pair.name, pair.pool, pair.threads);
        let is_reference = pair.pool.starts_with("driver");
        let time = timed(name, "ns", pair.ns.median, (pair.ns.min, pair.ns.max), pools.rounds);
        Measurement { is_reference, ..time }
    };
    pools.pairs.iter().map(pair).collect()
}
