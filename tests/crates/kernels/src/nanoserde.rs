//! Serialisation to a binary format and to JSON, without serde.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use nanoserde::{DeBin, DeJson, SerBin, SerJson};

#[derive(SerBin, DeBin, SerJson, DeJson, PartialEq)]
struct Item {
    name: String,
    count: u32,
    parts: Vec<u16>,
}

/// Writes and reads both formats.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for _ in 0..5 {
        let item = Item {
            name: random.text(10),
            count: random.number() as u32,
            parts: (0..random.below(6)).map(|_| random.number() as u16).collect(),
        };
        let bytes = item.serialize_bin();
        sum.bytes(&bytes);
        sum.add(Item::deserialize_bin(&bytes).is_ok_and(|back| back == item).into());
        let text = item.serialize_json();
        sum.bytes(text.as_bytes());
        sum.add(Item::deserialize_json(&text).is_ok_and(|back| back == item).into());
        sum.add(Item::deserialize_json(&text[1..]).is_ok().into());
    }
    sum.finish()
}
