//! Memory that was freed while work on it is pending, and the order of work of two streams.

use crate::driver_pool::{others, set};
use crate::held::Held;
use crate::prelude::*;

const FLOATS: Layout = Layout::new::<[f32; 4096]>();

fn two_streams(device: &Device) -> [Stream; 2] {
    [device.stream().unwrap(), device.stream().unwrap()]
}

/// Without an event between two streams, the check of the values reports that the second stream did
/// not wait.
#[test]
fn a_missing_dependency_between_streams_is_reported() {
    for device in devices() {
        let (module, [first, second]) = (module(&device), two_streams(&device));
        let pool = DriverPool::builder().build(&device).unwrap();
        let block = alloc(&pool, FLOATS, &first);
        let fill_both = |is_ordered: bool| {
            set(&first, &module, block, 1.0);
            if is_ordered {
                second.wait(&first.record().unwrap()).unwrap();
            }
            set(&second, &module, block, 2.0);
        };
        fill_both(true);
        assert_eq!(others(&device, block, 2.0), 0, "on {device}");
        let held = Held::new(&module, &first);
        fill_both(false);
        second.synchronize().unwrap();
        held.let_go();
        assert_eq!((others(&device, block, 2.0), others(&device, block, 1.0)), (4096, 0), "on {device}");
        free(&pool, block, &first).unwrap();
    }
}

#[test]
fn memory_that_is_pending_on_one_stream_is_not_anothers() {
    for device in devices() {
        let (module, [first, second]) = (module(&device), two_streams(&device));
        let pool = DriverPool::builder().reuse(ReusePolicies::none()).build(&device).unwrap();
        let block = alloc(&pool, FLOATS, &first);
        let held = Held::new(&module, &first);
        free(&pool, block, &first).unwrap();
        let other = alloc(&pool, FLOATS, &second);
        let again = alloc(&pool, FLOATS, &first);
        let is_done = first.is_done().unwrap();
        held.let_go();
        first.synchronize().unwrap();
        assert!(!is_done, "something waited on the host");
        assert_ne!(other.0.0, block.0.0, "on {device}");
        free(&pool, again, &first).unwrap();
        free(&pool, other, &second).unwrap();
    }
}

/// The reset, and allocations after it, wait on the device for the kernel that precedes the free of
/// the region.
#[test]
fn the_reset_of_a_bump_pool_waits_on_the_device_alone() {
    for device in devices() {
        let (module, [first, resets]) = (module(&device), two_streams(&device));
        let user = device.stream().unwrap();
        let pool = BumpPool::builder(FLOATS).build_over(driver(&device)).unwrap();
        let block = alloc(&pool, FLOATS, &first);
        set(&first, &module, block, 1.0);
        let held = Held::new(&module, &first);
        set(&first, &module, block, 2.0);
        free(&pool, block, &first).unwrap();
        pool.reset(&resets).unwrap();
        let again = alloc(&pool, FLOATS, &user);
        set(&user, &module, again, 3.0);
        let are_done = [resets.is_done().unwrap(), user.is_done().unwrap()];
        held.let_go();
        assert_eq!((again.0.0, are_done), (block.0.0, [false; 2]), "on {device}");
        assert_eq!(others(&device, again, 3.0), 0, "on {device}");
        free(&pool, again, &user).unwrap();
    }
}
