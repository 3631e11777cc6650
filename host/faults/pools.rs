//! Each driver call fails in turn below each pool: once, until the driver recovers, or permanently.
//!
//! Whichever call fails, the pool returns an error that names it, or succeeds in another way. No
//! two blocks overlap, and no stream gets a block before the work that precedes its free (`Rig`).
//! Afterwards the pool works as before, and after its drop the driver holds nothing of it: a single
//! failure never leaks. If all calls fail from one on, only two things may leak: memory of a
//! constructor that could not return an object, and memory of a pool that is dropped while the
//! driver still fails, because no object remains that could retry.

use super::rig::Rig;
use super::subjects::{Memory, Pool, SUBJECTS, Subject};
use crate::driver::Stream;
use crate::driver::fault_injection::{self, Call, Run};
use crate::host_pools::{DeviceAllocator, SyncDriverAllocator};

fn make(run: &mut Run, subject: &Subject) -> Option<(Box<dyn Pool>, Memory, Vec<Stream>)> {
    let device = run.device.clone();
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(run.construct(|| device.stream())?);
    }
    let (pool, memory) = run.construct(|| {
        let memory = Memory::new(SyncDriverAllocator::new(&device));
        Ok(((subject.make)(&device, memory.clone())?, memory))
    })?;
    Some((pool, memory, streams))
}

/// Uses every source of blocks: each stream's own free blocks, those of other streams, the entire
/// pool, and freed blocks.
fn use_pool(rig: &mut Rig<'_>, subject: &Subject, pool: &dyn Pool, streams: &mut [Stream]) {
    for round in 0..2 {
        for (i, size) in subject.sizes.iter().enumerate() {
            rig.alloc(pool, *size, &streams[i % 2]);
        }
        for i in 0..subject.sizes.len() {
            // On the stream that owns it, and on the other one.
            rig.free_last(pool, &streams[(i + round) % 2]);
        }
    }
    let largest = subject.sizes.iter().copied().max().unwrap_or(1);
    for _ in 0..subject.requests {
        rig.alloc(pool, largest, &streams[2]);
    }
    for _ in 0..subject.requests / 2 {
        rig.free_last(pool, &streams[1]);
    }
    // Drop one stream, with the memory that was freed on it.
    let device = rig.run.device.clone();
    if let Some(stream) = rig.attempt_own(|| device.stream()) {
        streams[1] = stream;
    }
    for size in subject.sizes {
        rig.alloc(pool, *size, &streams[0]);
    }
    rig.run.attempt(|| pool.tidy(&streams[2]));
    for i in 0..subject.sizes.len() {
        rig.free_last(pool, &streams[i % 3]);
    }
    rig.run.attempt(|| pool.tidy(&streams[0]));
    for size in subject.sizes {
        rig.alloc(pool, *size, &streams[1]);
    }
    if pool.rungs().is_some() {
        while rig.blocks() > 0 && rig.free_last(pool, &streams[2]) {}
        // Cached memory must be returned to the driver first.
        rig.alloc(pool, 2 * largest, &streams[0]);
    }
}

/// The pool allocates and frees as if no call had failed.
fn check_usable(rig: &mut Rig<'_>, subject: &Subject, pool: &dyn Pool, streams: &[Stream]) {
    for round in 0..2 {
        while rig.blocks() > 0 {
            rig.must_free_last(pool, &streams[round]);
        }
        rig.run.must(|| pool.tidy(&streams[round])).expect("it is tidied");
        pool.check();
        assert_eq!(pool.usage().used_bytes, 0, "{}", rig.run);
        for (i, size) in subject.sizes.iter().enumerate() {
            rig.must_alloc(pool, *size, &streams[(i + round) % 3]);
        }
    }
    // Two blocks are still allocated when the pool is dropped.
    while rig.blocks() > 2 {
        rig.must_free_last(pool, &streams[0]);
    }
}

/// Builds the pool, uses it, and uses it again after the driver has recovered.
fn scenario(subject: &Subject) -> impl Fn(&mut Run) {
    |run| {
        let Some((pool, memory, mut streams)) = make(run, subject) else { return };
        let mut rig = Rig::new(run);
        use_pool(&mut rig, subject, &*pool, &mut streams);
        if run.recovers() {
            run.recover();
            check_usable(&mut rig, subject, &*pool, &streams);
            drop(pool);
            assert_eq!(memory.usage().used_bytes, 0, "{run}: the dropped pool has freed its memory");
        }
    }
}

#[test]
fn the_scenario_reaches_all_calls_and_every_rung_of_the_ladder() {
    let mut reached = [0; 4];
    for subject in SUBJECTS {
        let mut run = Run::unharmed(subject.name);
        let (pool, _, mut streams) = make(&mut run, subject).expect("nothing fails");
        let mut rig = Rig::new(&run);
        use_pool(&mut rig, subject, &*pool, &mut streams);
        if let Some(rungs) = pool.rungs() {
            println!("{}: {rungs:?}", subject.name);
            let these = [rungs.grown, rungs.stolen, rungs.released, rungs.failed];
            reached.iter_mut().zip(these).for_each(|(all, one)| *all += one);
        }
        check_usable(&mut rig, subject, &*pool, &streams);
        let own_calls = rig.own_calls.into_iter().chain([Call::NewStream; 3]);
        drop((pool, streams));
        // Calls of the scenario do not count: three streams, later ones, and waits for them.
        let mut calls = run.faults.all_calls();
        for own in own_calls {
            calls.swap_remove(calls.iter().position(|call| *call == own).expect("it was made"));
        }
        let missed: Vec<_> = subject.calls.iter().filter(|call| !calls.contains(call)).collect();
        assert!(missed.is_empty(), "{} does not reach {missed:?}", subject.name);
    }
    assert!(reached.iter().all(|times| *times > 0), "{reached:?}");
}

#[test]
fn each_driver_call_fails_once() {
    for subject in SUBJECTS {
        let all = fault_injection::each_call_fails_once(subject.name, scenario(subject));
        println!("{}: {} calls", subject.name, all.len());
    }
}

#[test]
fn all_driver_calls_fail_until_recovery() {
    for subject in SUBJECTS {
        fault_injection::all_calls_fail_for_a_while(subject.name, scenario(subject));
    }
}

#[test]
fn all_driver_calls_fail_permanently() {
    for subject in SUBJECTS {
        fault_injection::all_calls_fail_for_good(subject.name, scenario(subject));
    }
}
