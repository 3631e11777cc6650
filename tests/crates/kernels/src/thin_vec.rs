//! Vectors of one pointer: length and capacity are in the allocation.

use crate::{Random, Sum};
use alloc::string::String;
use thin_vec::{ThinVec, thin_vec};

/// Vectors in a vector, most of them empty.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut rows: ThinVec<ThinVec<String>> = thin_vec![ThinVec::new(); 30];
    for _ in 0..60 {
        rows[random.below(30) as usize].push(random.text(12));
    }
    rows.retain(|row| row.len() != 2);
    rows.sort();
    let rest = rows.split_off(rows.len() / 2);
    for row in rest.into_iter().chain(rows) {
        sum.add(row.len() as u64);
        row.iter().for_each(|text| sum.bytes(text.as_bytes()));
    }
    sum.finish()
}
