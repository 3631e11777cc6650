//! JSON, by types and by values.

use crate::{Random, Sum};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize, PartialEq)]
struct Person {
    name: String,
    age: u32,
    balance: f64,
    tags: Vec<String>,
    limits: BTreeMap<String, i64>,
    partner: Option<String>,
}

/// Writes a structure, reads it, changes a value, and reads broken texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let person = Person {
        name: random.text(12),
        age: random.below(100) as u32,
        balance: random.below(1 << 40) as f64 / 1024.0,
        tags: (0..random.below(4)).map(|_| random.text(6)).collect(),
        limits: (0..3).map(|_| (random.text(4), random.number() as i64)).collect(),
        partner: (random.below(2) == 0).then(|| random.text(5)),
    };
    let Ok(mut text) = serde_json::to_string(&person) else { return 1 };
    sum.bytes(text.as_bytes());
    sum.add(serde_json::from_str::<Person>(&text).is_ok_and(|back| back == person).into());
    let Ok(mut value) = serde_json::from_str::<Value>(&text) else { return 2 };
    value["age"] = json!([1, null, {"x": random.below(10)}]);
    sum.bytes(value.to_string().as_bytes());
    text.truncate(random.below(text.len() as u64) as usize);
    match serde_json::from_str::<Value>(&text) {
        Ok(_) => sum.add(3),
        Err(error) => sum.add((error.line() * 1000 + error.column()) as u64),
    }
    sum.finish()
}
