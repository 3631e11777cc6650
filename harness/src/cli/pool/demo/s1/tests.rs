//! Faulty block pools, and the checks that detect the fault.

use super::super::planted::{Fault, Planted, Wrong, find_all, pool, stage};
use super::super::stage::Plant;
use super::*;

impl Blocks for Wrong<dyn Blocks> {
    fn available(&self) -> usize {
        self.pool.available() + usize::from(self.is(Fault::Miscounts))
    }
}

/// Asserts that the step detects each fault, and that each of its checks detects at least one of
/// them.
fn finds(step: Step, faults: &[(Planted, &[&str])]) {
    let step = |stage: &mut Stage<'_>, fault: Option<Fault>| {
        let pool: Box<dyn Blocks> = Box::new(super::pool(stage)?);
        match fault {
            Some(fault) => step(stage, &Wrong::new(fault, pool)),
            None => step(stage, &*pool),
        }
    };
    find_all(DEMO.launched, &step, faults, &[]);
}

#[test]
fn counts_that_are_wrong_and_blocks_that_do_not_come_back_are_found() {
    let all = ["blocks available at first", "with 10 allocated", "with those given back"];
    let faults: [(_, &[&str]); 2] = [(pool(Fault::Miscounts), &all), (pool(Fault::Keeps), &all[2..])];
    finds(count, &faults);
}

#[test]
fn blocks_in_each_other_and_more_than_there_are_are_found() {
    let faults: [(_, &[&str]); 4] = [
        (pool(Fault::Overlapping), &["distinct addresses of 100", "they are 4096 B apart"]),
        (pool(Fault::Elsewhere), &["they are 4096 B apart", "available then"]),
        (pool(Fault::Generous), &["the 101st"]),
        (pool(Fault::Miscounts), &["available then"]),
    ];
    finds(exhaust, &faults);
}

#[test]
fn frees_of_what_is_no_block_that_are_taken_are_found() {
    let taken = ["an address inside of", "a foreign address", "a block that was given back before"];
    let faults: [(_, &[&str]); 4] = [
        (pool(Fault::TakesAnything), &taken),
        (pool(Fault::Keeps), &["available after those"]),
        (pool(Fault::Miscounts), &["available after those"]),
        (pool(Fault::Elsewhere), &["the only free block is"]),
    ];
    finds(misuse, &faults);
}

#[test]
fn blocks_that_others_write_to_are_found() {
    let faults: [(_, &[&str]); 3] = [
        (pool(Fault::Overlapping), &["wrong words of 102,400"]),
        (stage(Plant::ForgottenWord), &["wrong words of 102,400"]),
        (pool(Fault::Keeps), &["available with all given back"]),
    ];
    finds(contents, &faults);
}

#[test]
fn a_block_that_goes_to_another_stream_too_early_is_found() {
    let faults: [(_, &[&str]); 3] = [
        (pool(Fault::Elsewhere), &["a block that was freed behind a kernel"]),
        (pool(Fault::Unordered), &["what that kernel wrote comes first"]),
        (stage(Plant::ForgottenWord), &["what that kernel wrote comes first"]),
    ];
    finds(order, &faults);
}

#[test]
fn blocks_with_two_owners_are_found() {
    let faults: [(_, &[&str]); 2] = [
        (pool(Fault::Overlapping), &["blocks with two owners"]),
        (pool(Fault::Miscounts), &["available at the end"]),
    ];
    finds(threads, &faults);
}
