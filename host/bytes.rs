//! Numbers of bytes in messages.

use std::fmt;

/// A number of bytes. Prints the exact number and, from 1 KiB on, also a rounded one. `{:#}` prints
/// only one of them: the exact one below 1 KiB, otherwise the rounded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let exponent = self.0.checked_ilog2().unwrap_or(0) / 10;
        match exponent {
            0 => write!(f, "{} B", self.0),
            _ => {
                let rounded = self.0 as f64 / (1_u64 << (10 * exponent)) as f64;
                let unit = UNITS[exponent as usize - 1];
                if f.alternate() {
                    return write!(f, "{rounded:.1} {unit}");
                }
                write!(f, "{} B ({rounded:.1} {unit})", self.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_exactly_and_rounded() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1024).to_string(), "1024 B (1.0 KiB)");
        assert_eq!(Bytes(3 << 29).to_string(), "1610612736 B (1.5 GiB)");
        assert_eq!(format!("{:#} and {:#}", Bytes(1023), Bytes(3 << 29)), "1023 B and 1.5 GiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "18446744073709551615 B (16.0 EiB)");
    }
}
