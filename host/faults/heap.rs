//! A heap that the host allocates from, grows and resets: it stays consistent whichever driver call
//! fails.
//!
//! Its calls use temporary buffers, which leak if their frees fail, too. So the test checks for
//! leaks only where a single call fails.

use crate::device_pools::Heap;
use crate::driver::fault_injection::{self, Call, Run};
use crate::error::{Error, Result};
use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

const MIB: u64 = 1 << 20;

/// Allocates a block for each layout. The heap has room for twice as many: if a call fails after
/// the launch, its blocks stay allocated and their addresses are unknown.
fn allocate(run: &Run, heap: &Heap, layouts: &[Layout]) -> Option<Vec<DevicePtr<u8>>> {
    let blocks = run.must(|| heap.allocate_many(layouts))?;
    Some(blocks.into_iter().map(|block| block.expect("there is room")).collect())
}

fn free(run: &Run, heap: &Heap, blocks: &[DevicePtr<u8>]) -> Option<()> {
    let mut has_failed = false;
    run.must(|| {
        // SAFETY: no kernel uses them.
        let freed = unsafe { heap.deallocate_many(blocks) };
        match freed {
            // The blocks were freed before the failed call, which reads the fault record.
            Err(Error::InvalidFree(_)) if has_failed => Ok(()),
            other => {
                has_failed = other.is_err();
                other
            }
        }
    })
}

fn check(run: &Run, heap: &Heap) -> Option<()> {
    let violations = run.must(|| heap.check())?;
    assert!(violations.is_empty(), "{run}: {violations:?}");
    let faults = run.must(|| heap.faults())?;
    assert_eq!(faults.count, 0, "{run}");
    Some(())
}

fn use_heap(run: &Run, heap: &mut Heap) -> Option<()> {
    let small = vec![Layout::new::<[u64; 10]>(); 300];
    let blocks = allocate(run, heap, &small)?;
    check(run, heap)?;
    free(run, heap, &blocks[..100])?;
    assert!(run.must(|| heap.stats())?.live_blocks >= 200, "{run}");
    let mut attempts = 0;
    run.must(|| {
        attempts += 1;
        heap.grow_to(8 * MIB)
    })?;
    // A growth that failed halfway may leave slabs that are not allocated before a reset
    // (`Heap::grow_to`).
    if attempts == 1 {
        check(run, heap)?;
    }
    free(run, heap, &blocks[100..])?;
    run.must(|| heap.reset())?;
    assert_eq!(run.must(|| heap.stats())?.live_blocks, 0, "{run}");
    // More than the capacity before the growth.
    let large = [Layout::new::<[u64; 3 << 15]>(); 3];
    let blocks = allocate(run, heap, &large)?;
    check(run, heap)?;
    free(run, heap, &blocks)
}

fn scenario(run: &mut Run) {
    let device = run.device.clone();
    let made = run.construct(|| Heap::builder(8 * MIB).initial(2 * MIB).build(&device));
    if let Some(mut heap) = made {
        let _ = use_heap(run, &mut heap);
        run.recover();
    }
}

fn is_reached(calls: &[Call]) -> Result<(), Vec<Call>> {
    use Call::{Alloc, Create, Free, Launch, Map, Module, Read, Release, StreamSynchronize, Unmap, Write};
    let wanted = [Alloc, Create, Free, Launch, Map, Module, Read, Release, StreamSynchronize, Unmap, Write];
    let missed: Vec<_> = wanted.into_iter().filter(|call| !calls.contains(call)).collect();
    if missed.is_empty() { Ok(()) } else { Err(missed) }
}

#[test]
fn each_call_of_the_driver_fails_once() {
    let calls = fault_injection::each_call_fails_once("a heap", scenario);
    println!("{} calls", calls.len());
    assert_eq!(is_reached(&calls), Ok(()));
}

#[test]
fn all_calls_fail_for_good() {
    fault_injection::all_calls_fail_for_good("a heap", scenario);
}
