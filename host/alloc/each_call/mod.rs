//! Every call of a driver's fails in turn, below each pool: once, or from then on until the driver is well again, or for good.
//!
//! Whatever fails, the pool says so and names the call, or finds another way; no two blocks overlap; nobody gets a block before the work
//! that it was freed behind (`Rig`). Afterwards it gives and takes as ever, and nothing is left with the driver when it is gone: one failure
//! never leaves anything, wherever it comes. Where all calls fail from one on, something stays with the driver only of a constructor that
//! could give nothing back, and at an end that comes while the driver still fails: then nobody is there who could try again.

mod handles;
mod rig;
mod subjects;

use crate::driver::Stream;
use crate::driver::flawed::{Call, Which};
use rig::Rig;
use subjects::{Pool, SUBJECTS, Subject};

/// What a driver answers: that something is broken (`CUDA_ERROR_UNKNOWN`), or that there is no memory.
const BROKEN: u32 = 999;
const NO_MEMORY: u32 = 2;

fn make(rig: &mut Rig, subject: &Subject) -> Option<(Box<dyn Pool>, Vec<Stream>)> {
    let device = rig.device.clone();
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(rig.must(|| device.stream())?);
    }
    Some((rig.must(|| (subject.make)(&device))?, streams))
}

/// Uses all that a pool has: each stream's own blocks, those of others, all that there is, and what comes back.
fn play(rig: &mut Rig, subject: &Subject, pool: &dyn Pool, streams: &mut [Stream]) {
    for round in 0..2 {
        for (i, size) in subject.sizes.iter().enumerate() {
            rig.alloc(pool, *size, &streams[i % 2]);
        }
        for i in 0..subject.sizes.len() {
            // On the stream that has it, and on the one that does not.
            rig.free_last(pool, &streams[(i + round) % 2]);
        }
    }
    let largest = subject.sizes.iter().copied().max().unwrap_or(1);
    for _ in 0..subject.most {
        rig.alloc(pool, largest, &streams[2]);
    }
    for _ in 0..subject.most / 2 {
        rig.free_last(pool, &streams[1]);
    }
    // One stream goes, with what was freed on it.
    let device = rig.device.clone();
    if let Some(stream) = rig.attempt(|| device.stream()) {
        streams[1] = stream;
    }
    for size in subject.sizes {
        rig.alloc(pool, *size, &streams[0]);
    }
    rig.attempt(|| pool.tidy(&streams[2]));
    for i in 0..subject.sizes.len() {
        rig.free_last(pool, &streams[i % 3]);
    }
    rig.attempt(|| pool.tidy(&streams[0]));
    for size in subject.sizes {
        rig.alloc(pool, *size, &streams[1]);
    }
    if pool.rungs().is_some() {
        while rig.blocks() > 0 && rig.free_last(pool, &streams[2]) {}
        // What is cached has to go back first.
        rig.alloc(pool, 2 * largest, &streams[0]);
    }
}

/// The pool gives and takes as if nothing had been.
fn is_well(rig: &mut Rig, subject: &Subject, pool: &dyn Pool, streams: &[Stream]) {
    for round in 0..2 {
        while rig.blocks() > 0 {
            rig.must_free_last(pool, &streams[round]);
        }
        rig.must(|| pool.tidy(&streams[round])).expect("it is tidied");
        pool.check();
        assert_eq!(pool.usage().used_bytes, 0, "{rig}");
        for (i, size) in subject.sizes.iter().enumerate() {
            rig.must_alloc(pool, *size, &streams[(i + round) % 3]);
        }
    }
    // One is still allocated when it goes.
    while rig.blocks() > 1 {
        rig.must_free_last(pool, &streams[0]);
    }
}

/// All calls that there were.
fn run(subject: &Subject, which: Which, code: u32, heals: bool) -> Vec<Call> {
    let mut rig = Rig::new(subject.name, which, code, heals);
    if let Some((pool, mut streams)) = make(&mut rig, subject) {
        play(&mut rig, subject, &*pool, &mut streams);
        if heals {
            rig.heal();
            is_well(&mut rig, subject, &*pool, &streams);
        }
        rig.forget();
    }
    assert!(!heals || rig.has_all_back(), "{rig}: {:?} is left", rig.faults.held());
    assert_eq!(rig.device.memory_in_use(), (0, 0), "{rig}");
    rig.faults.all_calls()
}

#[test]
fn ladders_are_climbed_to_their_ends() {
    let mut climbed = [0; 4];
    for subject in SUBJECTS {
        let mut rig = Rig::new(subject.name, Which::Never, BROKEN, true);
        let (pool, mut streams) = make(&mut rig, subject).expect("nothing fails");
        play(&mut rig, subject, &*pool, &mut streams);
        let Some(rungs) = pool.rungs() else { continue };
        println!("{}: {rungs:?}", subject.name);
        let these = [rungs.grown, rungs.stolen, rungs.released, rungs.failed];
        climbed.iter_mut().zip(these).for_each(|(all, one)| *all += one);
    }
    assert!(climbed.iter().all(|times| *times > 0), "{climbed:?}");
}

#[test]
fn each_call_of_the_driver_fails_once() {
    for subject in SUBJECTS {
        let all = run(subject, Which::Never, BROKEN, true);
        let missed: Vec<_> = subject.calls.iter().filter(|call| !all.contains(call)).collect();
        assert!(missed.is_empty(), "{} does not reach {missed:?}", subject.name);
        println!("{}: {} calls", subject.name, all.len());
        for code in [BROKEN, NO_MEMORY] {
            for nth in 1..=all.len() {
                run(subject, Which::Nth(nth), code, true);
            }
        }
    }
}

#[test]
fn from_one_call_on_all_fail_until_the_driver_is_well_again() {
    for subject in SUBJECTS {
        let all = run(subject, Which::Never, BROKEN, true);
        for (first, code) in (1..=all.len()).flat_map(|first| [(first, BROKEN), (first, NO_MEMORY)]) {
            run(subject, Which::From(first), code, true);
        }
    }
}

/// No drop panics, and nothing is taken for live any more.
#[test]
fn from_one_call_on_all_fail_for_good() {
    for subject in SUBJECTS {
        let all = run(subject, Which::Never, BROKEN, true);
        for first in 1..=all.len() {
            run(subject, Which::From(first), BROKEN, false);
        }
    }
}
