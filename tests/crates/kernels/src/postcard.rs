//! A compact binary format for serde.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq)]
enum Message {
    Ping,
    Move { x: i32, y: i32 },
    Say(String),
    Many(Vec<(u8, Option<u64>)>),
}

/// Writes messages, reads them, and reads damaged ones.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for _ in 0..20 {
        let message = match random.below(4) {
            0 => Message::Ping,
            1 => Message::Move { x: random.number() as i32, y: random.below(100) as i32 },
            2 => Message::Say(random.text(20)),
            _ => Message::Many(
                (0..random.below(6))
                    .map(|i| (i as u8, (i % 2 == 0).then(|| random.number() >> (i * 8))))
                    .collect(),
            ),
        };
        let Ok(mut bytes) = postcard::to_allocvec(&message) else { return 1 };
        sum.bytes(&bytes);
        sum.add(postcard::from_bytes::<Message>(&bytes).is_ok_and(|back| back == message).into());
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 4;
        sum.add(postcard::from_bytes::<Message>(&bytes).is_ok_and(|back| back == message).into());
    }
    sum.finish()
}
