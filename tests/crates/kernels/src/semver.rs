//! Versions and what they are compatible with.

use crate::{Random, Sum};
use alloc::format;
use alloc::vec::Vec;
use semver::{Version, VersionReq};

/// Parses, sorts and matches versions.
pub fn checksum(seed: u64) -> u64 {
    const TAGS: [&str; 4] = ["", "-alpha.1", "-rc.2+build.7", "+x"];
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut versions: Vec<Version> = Vec::new();
    for _ in 0..12 {
        let [a, b, c] = [(); 3].map(|()| random.below(4));
        let text = format!("{a}.{b}.{c}{}", TAGS[random.below(4) as usize]);
        versions.extend(Version::parse(&text));
    }
    versions.sort();
    for req in ["^1.2", ">=1.0.0-alpha, <3", "~2.1.1", "=0.1", "*", "1.x.y"] {
        match VersionReq::parse(req) {
            Ok(req) => versions.iter().for_each(|version| sum.add(req.matches(version).into())),
            Err(_) => sum.add(7),
        }
    }
    versions.iter().for_each(|version| sum.bytes(format!("{version}").as_bytes()));
    sum.finish()
}
