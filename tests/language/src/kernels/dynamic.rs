//! Calls whose target is known at run time only: trait objects, which call each other recursively,
//! and function pointers.

extern crate alloc;

use super::next;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A node of an expression.
trait Node {
    fn value(&self, depth: u32) -> u64;
}

struct Leaf(u64);
struct Sum(Vec<Box<dyn Node>>);
struct Mix(Box<dyn Node>, Box<dyn Node>);

impl Node for Leaf {
    fn value(&self, depth: u32) -> u64 {
        self.0.wrapping_mul(u64::from(depth) | 1)
    }
}

impl Node for Sum {
    fn value(&self, depth: u32) -> u64 {
        let mut sum = 0_u64;
        for (place, node) in self.0.iter().enumerate() {
            let value = node.value(depth + 1);
            for shift in 0..value % 5 {
                sum = sum.wrapping_add(value.rotate_right(shift as u32 * 7 + place as u32));
            }
        }
        sum
    }
}

impl Node for Mix {
    fn value(&self, depth: u32) -> u64 {
        let (left, right) = (self.0.value(depth + 1), self.1.value(depth + 1));
        if left & 1 == 0 { left ^ right.rotate_left(depth) } else { right.wrapping_mul(left) }
    }
}

/// An expression of at most `size` nodes. Its shape depends on `state`.
fn expression(size: u32, state: &mut u64) -> Box<dyn Node> {
    let number = next(state);
    match (size, number % 3) {
        (0..=2, _) => Box::new(Leaf(number)),
        (_, 0) => {
            let parts = (number >> 8) as u32 % 3 + 2;
            Box::new(Sum((0..parts).map(|_| expression((size - 1) / parts, state)).collect()))
        }
        _ => {
            let left = (number >> 8) as u32 % (size - 1);
            Box::new(Mix(expression(left, state), expression(size - 1 - left, state)))
        }
    }
}

/// The value of a tree of trait objects with at most `size` nodes.
pub fn evaluate(size: u32, seed: u64) -> u64 {
    let mut state = seed;
    expression(size, &mut state).value(0)
}

type Step = fn(u64, u32) -> u64;

/// Steps that call the next one through the table.
const STEPS: [Step; 4] = [
    |number, left| number.rotate_left(left),
    |number, left| again(number ^ 0x5555, left),
    |number, left| (0..number % 4).fold(number, |sum, i| sum.wrapping_mul(3) + i + u64::from(left)),
    |number, left| again(number.wrapping_mul(5), left).wrapping_add(number),
];

#[inline(never)]
fn again(number: u64, left: u32) -> u64 {
    let Some(left) = left.checked_sub(1) else { return number };
    let mut sum = number;
    for i in 0..1 + (number >> 7) % 2 {
        sum = STEPS[(sum >> 5) as usize % 4](sum.wrapping_add(i), left / (1 + i as u32));
    }
    sum
}

/// A walk of at most `steps` steps over a table of function pointers.
pub fn pointers(steps: u32, seed: u64) -> u64 {
    let mut state = seed;
    (0..8).fold(0, |sum, _| again(sum ^ next(&mut state), steps))
}
