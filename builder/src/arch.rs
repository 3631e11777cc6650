//! Architectures: accepted names, and the oldest PTX version that each needs.

use std::fmt;
use std::str::FromStr;

/// The compiler's name of the target: one for all architectures.
pub(crate) const TARGET: &str = "nvptx64-nvidia-cuda";

/// The first architecture with independent thread scheduling, which every collective here relies
/// on.
const OLDEST: u32 = 70;

/// PTX 7.0: `activemask` and the scoped atomics need 6.2; every driver since CUDA 11.0 accepts it.
const OLDEST_PTX: u32 = 70;

/// The PTX version that LLVM requires from each architecture on, newest first.
const PTX_SINCE: [(u32, u32); 8] =
    [(121, 88), (120, 87), (103, 88), (100, 86), (89, 78), (87, 74), (86, 71), (OLDEST, OLDEST_PTX)];

/// A GPU architecture: `sm_70`, `sm_80`, `sm_90a`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    number: u32,
    suffix: Option<char>,
}

impl Arch {
    /// Volta, the oldest supported architecture. PTX for it runs on all newer GPUs.
    pub const SM_70: Arch = Arch { number: OLDEST, suffix: None };

    /// `80` for `sm_80`.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Whether PTX for this architecture can be compiled for `other`.
    pub(crate) fn runs_on(self, other: Arch) -> bool {
        match self.suffix {
            None => self.number <= other.number,
            Some('a') => self == other,
            _ => {
                let is_of_family = self.number / 10 == other.number / 10 && other.suffix.is_some();
                is_of_family && self.number <= other.number
            }
        }
    }

    /// The PTX version to emit, times ten: 78 for PTX 7.8.
    pub fn ptx_version(self) -> u32 {
        // The accelerated and family variants came one PTX version after their plain architecture.
        let variant = match (self.suffix, self.number) {
            (Some('a'), 90) => 80,
            (Some('f'), _) => 88,
            _ => OLDEST_PTX,
        };
        let plain =
            PTX_SINCE.iter().find(|(since, _)| *since <= self.number).map_or(OLDEST_PTX, |(_, ptx)| *ptx);
        plain.max(variant)
    }
}

impl Default for Arch {
    fn default() -> Self {
        Arch::SM_70
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

/// The name of an architecture that does not exist or is too old.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{requested}` is not an architecture to build for: {why}; write for example `sm_70`, `sm_80` or `sm_90`"
)]
pub struct InvalidArch {
    /// The name.
    pub requested: String,
    /// The problem with it.
    pub why: String,
}

impl FromStr for Arch {
    type Err = InvalidArch;

    fn from_str(requested: &str) -> Result<Self, InvalidArch> {
        let invalid = |why: &str| InvalidArch { requested: requested.into(), why: why.into() };
        let digits = requested.strip_prefix("sm_").ok_or_else(|| invalid("it does not start with `sm_`"))?;
        let (digits, suffix) = match digits.chars().last() {
            Some(last @ ('a' | 'f')) => (&digits[..digits.len() - 1], Some(last)),
            _ => (digits, None),
        };
        let plain = (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| plain);
        let number = number.ok_or_else(|| invalid("no number after `sm_`"))?;
        if number < OLDEST {
            let why = "the oldest supported is sm_70 (Volta), the first with independent thread scheduling";
            return Err(invalid(why));
        }
        Ok(Arch { number, suffix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for name in ["sm_70", "sm_75", "sm_80", "sm_90a", "sm_100", "sm_100f", "sm_120"] {
            assert_eq!(name.parse::<Arch>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_rejected_with_the_reason() {
        for (name, why) in [
            ("sm_60", "oldest supported is sm_70"),
            ("compute_80", "start with `sm_`"),
            ("sm_", "no number"),
            ("sm_8x", "no number"),
            ("sm_1000", "no number"),
            ("sm_+80", "no number"),
            ("", "start with `sm_`"),
        ] {
            let said = name.parse::<Arch>().unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("sm_80"), "{name}: {said}");
        }
    }

    #[test]
    fn ptx_is_as_old_as_the_architecture_allows() {
        for (name, ptx) in [
            ("sm_70", 70),
            ("sm_80", 70),
            ("sm_86", 71),
            ("sm_90", 78),
            ("sm_90a", 80),
            ("sm_100", 86),
            ("sm_120", 87),
        ] {
            assert_eq!(name.parse::<Arch>().unwrap().ptx_version(), ptx, "{name}");
        }
    }
}
