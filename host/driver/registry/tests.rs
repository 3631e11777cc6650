use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn range(address: u64, bytes: u64) -> Range {
    Range { address, bytes }
}

#[test]
fn only_ranges_inside_one_allocation_are_registered() {
    let registry = Registry::default();
    registry.insert(range(0x1000, 0x100));
    registry.insert(range(0x1100, 0x100));
    assert!(registry.holds(range(0x1000, 0x100)));
    assert!(registry.holds(range(0x10ff, 1)));
    assert!(registry.holds(range(0x1100, 0)));
    assert!(!registry.holds(range(0x10ff, 2)), "spans two allocations");
    assert!(!registry.holds(range(0xfff, 1)));
    assert!(!registry.holds(range(0x1200, 1)));
    assert!(!registry.holds(range(0x1100, u64::MAX)), "the end wraps");
    registry.remove(0x1000);
    assert!(!registry.holds(range(0x1000, 1)));
    assert_eq!(registry.usage(), (0x100, 1));
}

#[test]
fn an_address_that_is_used_again_has_another_number() {
    let registry = Registry::default();
    registry.insert(range(0x1000, 0x100));
    let first = registry.number(range(0x1010, 1)).unwrap();
    registry.remove(0x1000);
    assert_eq!(registry.number(range(0x1010, 1)), None);
    registry.insert(range(0x1000, 0x100));
    assert_ne!(registry.number(range(0x1010, 1)), Some(first));
    let second = registry.number(range(0x1010, 1));
    registry.put_back(0x1000, registry.remove(0x1000));
    assert_eq!(registry.number(range(0x1010, 1)), second, "it was put back");
}

#[test]
fn the_live_part_and_all_of_a_reservation_are_registered() {
    let registry = Registry::default();
    registry.reserve(range(0x1000, 0x1000), true);
    let number = registry.number(range(0x1000, 0x1000)).expect("as the handle of a pool names it");
    assert!(!registry.holds(range(0x1000, 1)) && !registry.holds(range(0x1000, 0xfff)));
    assert_eq!(registry.usage(), (0, 1));
    registry.resize(0x1000, 0x200);
    assert!(registry.holds(range(0x1000, 0x200)) && !registry.holds(range(0x1000, 0x201)));
    assert!(!registry.holds(range(0x1100, 0x1000)), "the handle of no pool");
    assert_eq!(registry.number(range(0x11ff, 1)), Some(number));
    let nearest = registry.nearest(0x1300);
    assert!(nearest.contains("512 B") && nearest.contains("of 4096 B"), "{nearest}");
    registry.resize(0x1000, 0);
    assert!(!registry.holds(range(0x1000, 1)));
    registry.remove(0x1000);
    assert!(!registry.holds(range(0x1000, 0x1000)));
}

#[test]
fn only_the_live_part_of_a_reservation_without_a_handle_is_registered() {
    let registry = Registry::default();
    registry.reserve(range(0x1000, 0x1000), false);
    assert!(!registry.holds(range(0x1000, 0x1000)));
    registry.resize(0x1000, 0x1000);
    assert!(registry.holds(range(0x1000, 0x1000)));
    registry.resize(0x1000, 0x800);
    assert!(!registry.holds(range(0x1000, 0x1000)), "a slice of an unmapped part");
}

/// A launch check that looks up `range`.
fn find(range: Range) -> impl FnMut(&mut Look<'_>) -> Result<(), ()> {
    move |look| look.number(range).map(drop).ok_or(())
}

#[test]
fn removed_memory_is_freed_after_the_launches_that_found_it() {
    let registry = Registry::default();
    registry.insert(range(0x1000, 0x100));
    let submission = registry.submit(find(range(0x1000, 8))).unwrap();
    registry.remove(0x1000);
    assert!(registry.submit(find(range(0x1000, 8))).is_err());
    let settled = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            registry.settle();
            settled.store(true, Ordering::SeqCst);
        });
        while registry.waiting() == 0 {
            thread::yield_now();
        }
        assert!(!settled.load(Ordering::SeqCst));
        drop(submission);
    });
    registry.settle();
}

#[test]
fn a_launch_waits_while_its_memory_is_held() {
    let registry = Registry::default();
    registry.insert(range(0x1000, 0x100));
    registry.insert(range(0x2000, 0x100));
    let first = registry.hold(0x1000).unwrap();
    let second = registry.hold(0x1080).expect("a part of it");
    drop(registry.submit(find(range(0x2000, 8))).expect("another allocation is not held"));
    let submitted = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(registry.submit(find(range(0x1000, 8))));
            submitted.store(true, Ordering::SeqCst);
        });
        while registry.waiting() == 0 {
            thread::yield_now();
        }
        registry.release(first);
        while registry.waiting() == 0 {
            thread::yield_now();
        }
        assert!(!submitted.load(Ordering::SeqCst), "held twice");
        registry.release(second);
    });
    assert!(submitted.load(Ordering::SeqCst));
    let third = registry.hold(0x1000).unwrap();
    registry.remove(0x1000);
    registry.insert(range(0x1000, 0x100));
    registry.release(third);
    drop(registry.submit(find(range(0x1000, 8))).expect("another allocation at that address"));
}

#[test]
fn names_the_nearest_allocation_on_either_side() {
    let registry = Registry::default();
    assert!(registry.nearest(5).contains("no allocation"));
    registry.insert(range(0x1000, 0x100));
    registry.insert(range(0x9000, 0x200));
    assert!(registry.nearest(0x1180).contains("256 B at 0x1000"), "{}", registry.nearest(0x1180));
    assert!(registry.nearest(0x8fff).contains("512 B at 0x9000"));
    assert!(registry.nearest(0).contains("0x1000"));
    assert!(registry.nearest(u64::MAX).contains("0x9000"));
}
