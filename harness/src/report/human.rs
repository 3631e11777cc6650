//! Numbers with their units, and texts, for people.

pub use indicatif::{BinaryBytes, HumanCount as Count};
use serde_json::Value;
use std::fmt;

/// The unit prefixes, largest first.
const PREFIXES: [(f64, &str); 4] = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];

/// The value in the largest unit that it has, with the name of the unit.
fn prefixed(value: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    let found = units.iter().find(|(unit, _)| value.abs() >= *unit);
    found.map_or((value, ""), |(unit, name)| (value / unit, name))
}

/// A number with three digits and a unit prefix: `2.31 M`, `480 k`, `7`.
#[derive(Clone, Copy, Debug)]
pub struct Si(pub f64);

impl fmt::Display for Si {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, letter) = prefixed(self.0, &PREFIXES);
        let digits = match value {
            _ if letter.is_empty() && value.fract() == 0.0 => 0,
            100.0.. => 0,
            10.0.. => 1,
            _ => 2,
        };
        write!(f, "{value:.digits$}{letter}")
    }
}

/// Seconds, as `1.24 s`, `35.1 ms` or `7.20 us`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s >= 1.0 => write!(f, "{s:.2} s"),
            s if s >= 1e-3 => write!(f, "{:.1} ms", s * 1e3),
            s => write!(f, "{:.2} us", s * 1e6),
        }
    }
}

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
        UNITS.iter().find(|(other, ..)| *other == name).map_or(Unit::Other, |(_, unit, _)| *unit)
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
        UNITS.iter().find(|(_, unit, _)| *unit == self).map_or("value", |(.., axis)| axis)
    }
}

/// The names of units in files of results, and of their axes.
const UNITS: [(&str, Unit, &str); 10] = [
    ("threads", Unit::Threads, "threads"),
    ("bytes", Unit::Bytes, "bytes of each allocation"),
    ("us", Unit::Micros, "time"),
    ("ns", Unit::Nanos, "time"),
    ("x", Unit::Ratio, "ratio"),
    ("cycles", Unit::Cycles, "cycles of the SM's clock"),
    ("%", Unit::Percent, "share"),
    ("pairs/s", Unit::PairsPerSecond, "pairs of allocation and free per second"),
    ("G pairs/s", Unit::GigaPairsPerSecond, "pairs of allocation and free per second"),
    ("ppm", Unit::PerMillion, "failures per million"),
];

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
    let (value, name) = prefixed(nanos, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs")]);
    format!("{} {}", short(value), if name.is_empty() { "ns" } else { name })
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
    let (scaled, letter) = prefixed(value, &PREFIXES[..3]);
    if !(1e-4..1e6).contains(&scaled.abs()) {
        return format!("{scaled:.2e}{letter}");
    }
    let digits = (2 - scaled.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

/// `part` of `whole`, as `12.5 %`.
pub fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    format!("{:.1} %", 100.0 * share)
}

/// The first characters of a text in a line of `columns`, without control characters. Characters
/// of East Asian scripts count as two.
pub fn shortened(text: &str, columns: usize) -> String {
    let columns_of = |c: char| if c >= '\u{1100}' { 2 } else { 1 };
    let text: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.iter().copied().map(columns_of).sum::<usize>() <= columns {
        return text.into_iter().collect();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |c: &char| {
        let fits = columns_of(*c) <= left;
        left = left.saturating_sub(columns_of(*c));
        fits
    };
    let start: String = text.into_iter().take_while(fits).collect();
    start + "…"
}

/// Whether a terminal would obey the character, or XML does not allow it.
fn is_unprintable(one: char) -> bool {
    (one.is_control() && !['\n', '\t'].contains(&one)) || ['\u{fffe}', '\u{ffff}'].contains(&one)
}

/// The text, without unprintable characters.
pub fn printable(text: &str) -> String {
    text.replace(is_unprintable, "\u{fffd}")
}

/// Replaces unprintable characters in all texts of a file that was read, and in the names of its
/// fields.
pub fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(is_unprintable) => *text = printable(text),
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            fields.values_mut().for_each(make_printable);
            if fields.keys().any(|name| name.contains(is_unprintable)) {
                let named = std::mem::take(fields).into_iter();
                *fields = named.map(|(name, value)| (printable(&name), value)).collect();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 7.0, 999.0, 1234.0, 45_600.0, 2_310_000.0, 8.2e10].map(|n| Si(n).to_string());
        assert_eq!(texts, ["0", "7", "999", "1.23 k", "45.6 k", "2.31 M", "82.0 G"]);
    }

    #[test]
    fn seconds_find_their_unit() {
        let texts = [12.345, 0.0351, 7.2e-6].map(|s| Seconds(s).to_string());
        assert_eq!(texts, ["12.35 s", "35.1 ms", "7.20 us"]);
    }

    #[test]
    fn unprintable_characters_are_replaced_everywhere() {
        let mut value = json!([{"a\u{1b}": ["\u{0}b", "\u{85}\u{fffe}"], "c": "d\n\t\u{202e}é"}, 1, null]);
        make_printable(&mut value);
        let bad = "\u{fffd}";
        let expected = json!([{format!("a{bad}"): [format!("{bad}b"), format!("{bad}{bad}")], "c": "d\n\t\u{202e}é"}, 1, null]);
        assert_eq!(value, expected);
    }

    #[test]
    fn values_have_three_digits_and_a_unit() {
        let texts = [0.0, 0.003, 1.972, 12.53, 999.4, 1048.0, 65_536.0, 2_310_000.0, 8.2e10, 1e-9].map(short);
        assert_eq!(
            texts,
            ["0", "0.003", "1.97", "12.5", "999", "1,048", "65,536", "2.31 M", "82 G", "1.00e-9"]
        );
        let texts = [0.25, 7.2, 35_100.0, 2_500_000.0].map(|micros| Unit::Micros.text(micros));
        assert_eq!(texts, ["250 ns", "7.2 µs", "35.1 ms", "2.5 s"]);
        let texts = [16.0, 4096.0, 1_572_864.0].map(|bytes| Unit::Bytes.text(bytes));
        assert_eq!(texts, ["16 B", "4 KiB", "1.50 MiB"]);
        assert_eq!([Unit::Cycles.tick(4096.0), Unit::Cycles.tick(4097.0)], ["2¹²", "4,097"]);
        assert_eq!(
            [Unit::named("ppm").axis(), Unit::named("lakes").axis()],
            ["failures per million", "value"]
        );
    }

    #[test]
    fn shares_are_in_percent() {
        assert_eq!((percent(1, 8), percent(1, 0)), ("12.5 %".into(), "0.0 %".into()));
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shortened("as long", 7), "as long");
        assert_eq!(shortened("too long", 7), "too lo…");
        assert_eq!(shortened("a\tb\nc\x1b[0m", 20), "a b c [0m");
        assert_eq!(shortened("堆堆堆堆", 7), "堆堆堆…");
    }
}
