//! Regular expressions, compiled in each thread.

use crate::{Random, Sum};
use regex_automata::nfa::thompson::pikevm::PikeVM;

/// Finds and captures in random texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let Ok(regex) = PikeVM::new(r"(a+)(b|cd)*([0-9]{1,2})?") else { return 1 };
    let mut cache = regex.create_cache();
    for _ in 0..4 {
        let mut text = random.text(40);
        text.push_str("acdb42");
        for found in regex.find_iter(&mut cache, &text) {
            sum.add((found.start() << 16 | found.end()) as u64);
        }
        let mut captures = regex.create_captures();
        regex.captures(&mut cache, &text, &mut captures);
        for group in captures.iter() {
            sum.add(group.map_or(0, |span| 1 + span.start as u64 * 100 + span.end as u64));
        }
    }
    sum.finish()
}
