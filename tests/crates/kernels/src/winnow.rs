//! Parsers made of functions.

use crate::{Random, Sum};
use alloc::format;
use alloc::string::String;
use winnow::ascii::{digit1, multispace0};
use winnow::combinator::{alt, delimited, repeat, separated};
use winnow::prelude::*;

fn number(input: &mut &str) -> winnow::Result<u64> {
    delimited(multispace0, digit1.parse_to(), multispace0).parse_next(input)
}

fn term(input: &mut &str) -> winnow::Result<u64> {
    let factor = alt((number, delimited('(', sum_of, ')')));
    separated(1.., factor, '*')
        .map(|factors: alloc::vec::Vec<u64>| factors.into_iter().fold(1, u64::wrapping_mul))
        .parse_next(input)
}

fn sum_of(input: &mut &str) -> winnow::Result<u64> {
    let first = term.parse_next(input)?;
    repeat(0.., ('+', term))
        .fold(move || first, |sum: u64, (_, value)| sum.wrapping_add(value))
        .parse_next(input)
}

/// A random formula of at most `depth` levels.
fn formula(random: &mut Random, depth: u32) -> String {
    match random.below(4) {
        0 if depth > 0 => format!("({})", formula(random, depth - 1)),
        1 if depth > 0 => format!("{}+ {}", formula(random, depth - 1), formula(random, depth - 1)),
        2 if depth > 0 => format!("{} *{}", formula(random, depth - 1), formula(random, depth - 1)),
        _ => format!("{}", random.below(1000)),
    }
}

/// Evaluates formulas, some of them broken.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for i in 0..8 {
        let mut text = formula(&mut random, 4);
        if i % 4 == 3 {
            text.push(')');
        }
        match sum_of.parse(text.as_str()) {
            Ok(value) => sum.add(value),
            Err(error) => sum.add(error.offset() as u64),
        }
    }
    sum.finish()
}
