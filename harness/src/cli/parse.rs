//! Parses sizes, counts and ranges.

use crate::report::file::is_stdout;
use clap::builder::{OsStringValueParser, TypedValueParser};
use parse_size::Config;
use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use warpheap_harness::bench::suite;

const BYTES: &str = "a size is a number of bytes, with an optional unit: 64, 4KiB, 1GiB, 2^20 \
     (K, M, G and T are powers of 1024)";
const HEAP: &str = "a heap is measured over its load with 1 MiB to 128 GiB";
const COUNT: &str =
    "a count is a whole number of 1 or more: 65536, 64K, 1M, 2^20 (K and M are powers of 1024)";
const SIZES: &str =
    "--size is one size or a range from the smallest to the largest: 64, 4KiB, 16-8192, 16-8KiB";
const ORDINAL: &str = "a GPU is selected by its number: 0, 1; `warpheap doctor` lists them";
const TIME: &str = "a time is a number of seconds: 30, 0.5";
const STREAM: &str = "a stream is its number in the log, decimal or hexadecimal: 3, 0x7f5bd4000000";
const SEED: &str = "a seed is a whole number below 2^64, decimal or hexadecimal: 42, 0x2a";

/// An integer: digits with optional `_` between them, `b^e`, or digits and a unit.
fn number(text: &str) -> Option<u64> {
    match text.split_once('^') {
        Some((base, exponent)) => digits(base)?.checked_pow(u32::try_from(digits(exponent)?).ok()?),
        None if text.contains('.') => None,
        None => Config::new().with_binary().parse_size(text).ok(),
    }
}

fn digits(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

/// Bytes, at least 1.
pub fn bytes(text: &str) -> Result<u64, String> {
    number(text).filter(|&bytes| bytes > 0).ok_or_else(|| BYTES.into())
}

/// Bytes of a heap that is measured over its load.
pub fn measured_heap(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    let is_valid = (1 << 20..=suite::MOST_HEAP_BYTES).contains(&bytes);
    is_valid.then_some(bytes).ok_or_else(|| HEAP.into())
}

/// A count, at least 1.
pub fn count(text: &str) -> Result<u32, String> {
    let count = number(text).filter(|&count| count > 0).ok_or(COUNT)?;
    u32::try_from(count).map_err(|_| format!("{count} is more than the maximum, {}", u32::MAX))
}

/// A number of repetitions, at least 1.
pub fn rounds(text: &str) -> Result<u64, String> {
    number(text).filter(|&count| count > 0).ok_or_else(|| COUNT.into())
}

/// Decimal or hexadecimal.
pub fn seed(text: &str) -> Result<u64, String> {
    decimal_or_hex(text).ok_or_else(|| SEED.into())
}

/// Decimal or hexadecimal.
pub fn stream(text: &str) -> Result<u64, String> {
    decimal_or_hex(text).ok_or_else(|| STREAM.into())
}

/// Number of a GPU.
pub fn ordinal(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| ORDINAL.into())
}

fn decimal_or_hex(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits(text),
    }
}

/// Seconds, greater than 0.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text)? {
        Duration::ZERO => Err(format!("{TIME}; it must be more than 0")),
        time => Ok(time),
    }
}

/// Seconds, or 0.
pub fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| TIME)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| TIME.into())
}

/// A percentage, as a fraction.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    let percent = number.filter(|percent| (0.0..=1e6).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "a threshold is a percentage: 10%, 2.5%".into())
}

/// Range of allocation sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub RangeInclusive<u64>);

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (self.0.start(), self.0.end());
        if min == max { write!(f, "{min}") } else { write!(f, "{min}-{max}") }
    }
}

/// One size or a range.
pub fn sizes(text: &str) -> Result<Sizes, String> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let parse = |part: &str| number(part.trim()).filter(|&bytes| bytes > 0).ok_or(SIZES);
    let (min, max) = (parse(min)?, parse(max)?);
    if min > max {
        return Err(format!("the start of the range {text} is above its end; {SIZES}"));
    }
    Ok(Sizes(min..=max))
}

/// Target of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output, which then carries nothing else.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// A file that is written, or `-`.
pub fn target() -> impl TypedValueParser<Value = Target> {
    OsStringValueParser::new().try_map(to_target)
}

/// A file that is read, or `-`.
pub fn input() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(to_input)
}

fn to_target(path: OsString) -> Result<Target, String> {
    match path.to_str() {
        Some("") => Err("a file name is needed, or - for standard output".into()),
        Some("-") => Ok(Target::Stdout),
        _ if is_stdout(path.as_ref()) => Ok(Target::Stdout),
        _ => Ok(Target::File(path.into())),
    }
}

fn to_input(path: OsString) -> Result<PathBuf, String> {
    if path.is_empty() {
        Err("a file name is needed, or - for standard input".into())
    } else {
        Ok(path.into())
    }
}

/// Columns of a line, enough for the table of a map.
pub fn columns(text: &str) -> Result<usize, String> {
    let columns = text.parse().ok().filter(|columns| (40..=1000).contains(columns));
    columns.ok_or_else(|| "a width is a number of columns from 40 to 1000".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, value) in [
            ("0", 0),
            ("64", 64),
            ("1_000_000", 1_000_000),
            ("2^20", 1 << 20),
            ("1M", 1 << 20),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("4kib", 4096),
            ("512B", 512),
            ("1GiB", 1 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(number(text), Some(value), "{text}");
        }
        for text in ["", "-1", "1.5", "KiB", "2^64", "^3", "2^", "99999999999G", "4KX", "0x10", "1 of 2"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_one_or_a_range() {
        assert_eq!(sizes("64"), Ok(Sizes(64..=64)));
        assert_eq!(sizes("16-8KiB"), Ok(Sizes(16..=8192)));
        for text in ["", "-", "16-", "-16", "0", "0-16", "16-8", "16..32", "a-b", "16-32-64"] {
            assert!(sizes(text).is_err(), "{text}");
        }
        for text in ["64", "16-8192"] {
            assert_eq!(sizes(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn measured_heaps_have_limits() {
        assert_eq!([measured_heap("1MiB"), measured_heap("128GiB")], [Ok(1 << 20), Ok(1 << 37)]);
        assert_eq!(measured_heap("1023KiB"), measured_heap("129GiB"));
        assert!(measured_heap("some").is_err_and(|why| why != HEAP));
    }

    #[test]
    fn nothing_is_not_a_count() {
        assert_eq!(count("65536"), Ok(65536));
        assert!(count("0").is_err() && count("2^32").is_err() && bytes("0").is_err() && rounds("0").is_err());
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds_or_zero("0"), Ok(Duration::ZERO));
        for text in ["0", "-1", "NaN", "inf", "1m", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_are_fractions() {
        assert_eq!([percent("10%"), percent("2.5 %"), percent("0")], [Ok(0.1), Ok(0.025), Ok(0.0)]);
        for text in ["", "%", "-1%", "NaN", "inf", "10 percent"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seeds_and_streams_are_decimal_or_hexadecimal() {
        assert_eq!((seed("42"), seed("0x2a"), stream("0x2a")), (Ok(42), Ok(42), Ok(42)));
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        for text in ["", "-1", "18446744073709551616", "0x", "2a"] {
            assert!(seed(text).is_err() && stream(text).is_err(), "{text}");
        }
    }
}
