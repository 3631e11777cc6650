//! Units of values, and their text in charts and tables.

use crate::report::human::{BinaryBytes, Count};

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of threads.
    Threads,
    /// A number of bytes.
    Bytes,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
    /// A ratio.
    Ratio,
    /// Ticks of a clock.
    Cycles,
    /// A share of 100.
    Percent,
    /// Pairs per second.
    PairsPerSecond,
    /// 10^9 pairs per second.
    GigaPairsPerSecond,
    /// Parts per million.
    PerMillion,
    /// Another unit, which is not written.
    Other,
}

impl Unit {
    /// The unit with this name in a file of results.
    pub fn named(name: &str) -> Unit {
        match name {
            "threads" => Unit::Threads,
            "bytes" => Unit::Bytes,
            "us" => Unit::Micros,
            "ns" => Unit::Nanos,
            "x" => Unit::Ratio,
            "cycles" => Unit::Cycles,
            "%" => Unit::Percent,
            "pairs/s" => Unit::PairsPerSecond,
            "G pairs/s" => Unit::GigaPairsPerSecond,
            "ppm" => Unit::PerMillion,
            _ => Unit::Other,
        }
    }

    /// A value with its unit, with three digits.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Bytes => bytes(value),
            Unit::Micros => time(value * 1e3),
            Unit::Nanos => time(value),
            Unit::Ratio => format!("{} ×", short(value)),
            Unit::Threads | Unit::Cycles | Unit::Other => short(value),
            Unit::Percent => format!("{} %", short(value)),
            Unit::PairsPerSecond => format!("{}/s", short(value)),
            Unit::GigaPairsPerSecond => format!("{} G/s", short(value)),
            Unit::PerMillion => format!("{} ppm", short(value)),
        }
    }

    /// A value below an axis: numbers of threads and cycles are powers of two.
    pub fn tick(self, value: f64) -> String {
        let power = matches!(self, Unit::Threads | Unit::Cycles).then(|| power_of_two(value)).flatten();
        power.unwrap_or_else(|| self.text(value))
    }

    /// The name of an axis.
    pub fn axis(self) -> &'static str {
        match self {
            Unit::Threads => "threads",
            Unit::Bytes => "bytes of each allocation",
            Unit::Micros | Unit::Nanos => "time",
            Unit::Ratio => "ratio",
            Unit::Cycles => "cycles of the SM's clock",
            Unit::Percent => "share",
            Unit::PairsPerSecond | Unit::GigaPairsPerSecond => "pairs of allocation and free per second",
            Unit::PerMillion => "failures per million",
            Unit::Other => "value",
        }
    }
}

/// `2²⁰` for an exact power of two from 1 to 2^63.
fn power_of_two(value: f64) -> Option<String> {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let whole = value as u64;
    if whole as f64 != value || !whole.is_power_of_two() {
        return None;
    }
    let power = whole.trailing_zeros().to_string();
    let raised = power.bytes().filter_map(|digit| DIGITS.get(usize::from(digit.wrapping_sub(b'0'))));
    Some(format!("2{}", raised.collect::<String>()))
}

/// `512 B`, `4 KiB`, `1.5 MiB`.
fn bytes(value: f64) -> String {
    if value < 1024.0 {
        return format!("{} B", short(value));
    }
    BinaryBytes(value as u64).to_string().replacen(".00", "", 1)
}

/// Nanoseconds as `7.2 µs`.
fn time(nanos: f64) -> String {
    let steps = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (0.0, "ns")];
    let (unit, name) = steps.into_iter().find(|(unit, _)| nanos >= *unit).unwrap_or((1.0, "ns"));
    format!("{} {name}", short(nanos / unit.max(1.0)))
}

/// Three digits, without zeros at the end: `1.97`, `12.5`, `0.003`, `2.31 M`. Whole digits from a
/// thousand to a million: `16,384`.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    if (1e3..1e6).contains(&value) {
        return Count(value.round() as u64).to_string();
    }
    let steps = [(1e12, " T"), (1e9, " G"), (1e6, " M")];
    let (unit, letter) = steps.into_iter().find(|(unit, _)| value.abs() >= *unit).unwrap_or((1.0, ""));
    let scaled = value / unit;
    if !(1e-4..1e6).contains(&scaled.abs()) {
        return format!("{scaled:.2e}{letter}");
    }
    let digits = (2 - scaled.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}
