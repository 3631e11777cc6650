//! A failed reset leaves invalid metadata, which is not used until a reset succeeds.

use crate::device_pools::{Bump, FreeList, Heap};
use crate::driver::fault_injection::{Call, Faults, Which, faulty_device};
use crate::error::{Error, Result};
use std::alloc::Layout;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Fails each call of `reset` in turn, starting with the first `first`, which writes. Calls `look`
/// after each failure.
fn each_call_fails<P>(
    faults: &Arc<Faults>,
    first: Call,
    pool: &mut P,
    reset: impl Fn(&mut P) -> Result<()>,
    look: impl Fn(&mut P),
) {
    let before = faults.calls();
    reset(pool).unwrap();
    let calls = faults.all_calls()[before..].to_vec();
    let writes = calls.iter().position(|call| *call == first).expect("it writes");
    for nth in writes..calls.len() {
        let before = faults.calls();
        faults.tell(Which::Nth(before + nth + 1), 2);
        reset(pool).unwrap_err();
        let failed = faults.calls();
        faults.tell(Which::Never, 2);
        look(pool);
        let after = &faults.all_calls()[failed..];
        assert!(!after.contains(&Call::Launch), "a launch on half of the metadata, after call {nth}");
        reset(pool).unwrap();
    }
}

fn is_rejected<T>(outcome: Result<T>) -> bool {
    matches!(outcome, Err(Error::NotReset { .. }))
}

#[test]
fn a_heap_rejects_host_calls_after_a_failed_reset() {
    let (device, faults) = faulty_device(256 * MIB);
    let layout = Layout::new::<[u64; 8]>();
    let mut heap = Heap::builder(8 * MIB).initial(2 * MIB).build(&device).unwrap();
    let block = heap.allocate(layout).unwrap().unwrap();
    each_call_fails(&faults, Call::StreamFill, &mut heap, Heap::reset, |heap| {
        assert!(is_rejected(heap.allocate(layout)));
        // SAFETY: `block` is live, and no kernel uses it.
        assert!(is_rejected(unsafe { heap.deallocate(block) }));
        assert!(is_rejected(heap.grow_to(8 * MIB)));
        assert!(is_rejected(heap.stats()) && is_rejected(heap.check()) && is_rejected(heap.leaks(1)));
    });
    assert!(heap.allocate(layout).unwrap().is_some());
    assert_eq!(heap.stats().unwrap().live_blocks, 1);
}

#[test]
fn free_lists_and_bump_pools_report_no_stats_after_a_failed_reset() {
    let (device, faults) = faulty_device(64 * MIB);
    let mut list = FreeList::builder(64, 64).build(&device).unwrap();
    each_call_fails(&faults, Call::Write, &mut list, FreeList::reset, |list| {
        assert!(is_rejected(list.stats()) && is_rejected(list.check()));
    });
    assert_eq!(list.stats().unwrap().free_blocks, 64);
    let mut arena = Bump::builder(4096).build(&device).unwrap();
    each_call_fails(&faults, Call::Write, &mut arena, Bump::reset, |arena| {
        assert!(is_rejected(arena.stats()) && is_rejected(arena.check()));
    });
    assert_eq!(arena.stats().unwrap().remaining_bytes, 4096);
}
