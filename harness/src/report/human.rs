//! Numbers formatted for people.

pub use indicatif::{BinaryBytes, HumanCount as Count};
use std::fmt;

/// A number with three digits and a unit prefix: `2.31 M`, `480 k`, `7`.
#[derive(Clone, Copy, Debug)]
pub struct Si(pub f64);

impl fmt::Display for Si {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
        let (unit, letter) = steps.into_iter().find(|(unit, _)| self.0 >= *unit).unwrap_or((1.0, ""));
        let value = self.0 / unit;
        let digits = if value >= 100.0 || (value.fract() == 0.0 && unit == 1.0) {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
