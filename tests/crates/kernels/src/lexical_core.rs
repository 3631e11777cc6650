//! Numbers from texts and to texts.

use crate::{Random, Sum};
use lexical_core::{BUFFER_SIZE, parse, parse_partial, write};

/// Writes and reads integers and floating-point numbers.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum, mut buffer) = (Random::new(seed), Sum::new(), [0; BUFFER_SIZE]);
    for shift in 0..32 {
        let number = random.number() >> shift;
        let text = write(number, &mut buffer);
        sum.bytes(text);
        sum.add(parse::<u64>(text).unwrap_or(1));
        let float = f64::from_bits(random.number());
        let text = write(float, &mut buffer);
        sum.bytes(text);
        sum.add(parse::<f64>(text).map_or(2, f64::to_bits));
    }
    sum.add(parse::<f64>(b"1.7976931348623157e308").map_or(3, f64::to_bits));
    sum.add(parse_partial::<i32>(b"-123abc").map_or(4, |(number, len)| number as u64 ^ len as u64));
    sum.add(parse::<u8>(b"256").map_or(5, u64::from));
    sum.finish()
}
