//! Handles that are copied, moved, shared and freed.

use crate::driver::fault_injection::{Run, each_call_fails_once, is_injected};
use crate::error::Result;
use crate::host_pools::{CachingPool, DeviceAllocator, PoolBuffer, SyncDriverAllocator};

fn use_handles(run: &Run) -> Result<()> {
    let device = &run.device;
    let (first, second) = (device.stream()?, device.stream()?);
    let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(device))?;
    let used = || -> Result<()> {
        let mut values = PoolBuffer::from_slice(&pool, &[1_u32, 2, 3], &first)?;
        values.write(1, &[7])?;
        assert_eq!(values.copy_to_vec()?, [1, 7, 3], "{run}");
        let mut copy = PoolBuffer::<u32, _>::zeroed(&pool, 3, &second)?;
        copy.copy_from(&values)?;
        values.record_stream(&second)?;
        values.move_to(&second)?;
        copy.record_stream(&first)?;
        assert_eq!(copy.copy_to_vec()?, [1, 7, 3], "{run}");
        copy.deallocate_on(&first).map_err(|failed| failed.into_parts().0)?;
        values.deallocate().map_err(|failed| failed.into_parts().0)
    };
    let outcome = used();
    // Handles that were dropped after an error have retried their free.
    assert_eq!(pool.usage().used_bytes, 0, "{run}");
    pool.check();
    outcome
}

#[test]
fn each_call_of_the_driver_fails_once_below_handles() {
    let calls = each_call_fails_once("handles", |run| {
        if let Err(error) = use_handles(run) {
            assert!(is_injected(&error), "{run}: {error}");
        }
    });
    assert!(calls.len() > 20, "{calls:?}");
}
