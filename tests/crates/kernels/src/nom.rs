//! Parsers made of functions.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while1};
use nom::character::complete::{char, i64, multispace0};
use nom::combinator::{map, value};
use nom::multi::separated_list0;
use nom::sequence::{delimited, separated_pair};
use nom::{IResult, Parser};

#[derive(Clone, Debug)]
enum Item {
    Number(i64),
    Flag(bool),
    List(Vec<Item>),
}

fn item(input: &str) -> IResult<&str, Item> {
    let list = delimited(char('['), separated_list0(char(','), item), char(']'));
    let flag = alt((value(true, tag("yes")), value(false, tag("no"))));
    let any = alt((map(i64, Item::Number), map(flag, Item::Flag), map(list, Item::List)));
    delimited(multispace0, any, multispace0).parse(input)
}

fn settings(input: &str) -> IResult<&str, Vec<(&str, Item)>> {
    let key = take_while1(|c: char| c.is_ascii_lowercase());
    separated_list0(char(';'), separated_pair(key, char('='), item)).parse(input)
}

fn add(sum: &mut Sum, item: &Item) {
    match item {
        Item::Number(number) => sum.add(*number as u64),
        Item::Flag(flag) => sum.add((*flag).into()),
        Item::List(list) => list.iter().for_each(|item| add(sum, item)),
    }
}

/// Parses settings of numbers, flags and lists.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut text = String::new();
    for _ in 0..12 {
        let _ = match random.below(4) {
            0 => write!(text, "{}x= yes;", random.text(3)),
            1 => write!(text, "x=[{} , [ ], no];", random.number() as i32),
            2 => write!(text, "y={};", -(random.below(100) as i64)),
            _ => write!(text, "z=[[{}]] ;", random.below(10)),
        };
    }
    match settings(&text) {
        Ok((rest, all)) => {
            sum.add(rest.len() as u64);
            for (key, item) in &all {
                sum.bytes(key.as_bytes());
                add(&mut sum, item);
            }
        }
        Err(_) => sum.add(1),
    }
    sum.finish()
}
