//! CBOR for serde.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq)]
struct Reading {
    sensor: String,
    values: Vec<f64>,
    at: u64,
    note: Option<String>,
}

/// Writes a structure, reads it, and reads a part of it.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let reading = Reading {
        sensor: random.text(10),
        values: (0..5).map(|_| random.below(1000) as f64 / 8.0).collect(),
        at: random.number(),
        note: (random.below(2) == 0).then(|| random.text(10)),
    };
    let mut bytes = Vec::new();
    sum.add(ciborium::into_writer(&reading, &mut bytes).is_ok().into());
    sum.bytes(&bytes);
    let back: Result<Reading, _> = ciborium::from_reader(bytes.as_slice());
    sum.add(back.is_ok_and(|back| back == reading).into());
    bytes.pop();
    let back: Result<Reading, _> = ciborium::from_reader(bytes.as_slice());
    sum.add(back.is_ok().into());
    sum.finish()
}
