//! Handles that are copied, moved, shared and freed.

use super::subjects::Pool;
use crate::driver::Device;
use crate::driver::fault_injection::{Run, each_call_fails_once, is_injected};
use crate::error::Result;
use crate::host_pools::{CachingPool, PoolBox, PoolBuffer, SyncDriverAllocator};

fn use_handles(run: &Run, pool: &dyn Pool) -> Result<()> {
    let device = &run.device;
    let (first, second) = (device.stream()?, device.stream()?);
    let used = || -> Result<()> {
        let mut values = PoolBuffer::from_slice(pool, &[1_u32, 2, 3], &first)?;
        values.write(1, &[7])?;
        assert_eq!(values.copy_to_vec()?, [1, 7, 3], "{run}");
        let mut copy = PoolBuffer::<u32, _>::zeroed(pool, 3, &second)?;
        copy.copy_from(&values)?;
        values.record_stream(&second)?;
        values.move_to(&second)?;
        copy.record_stream(&first)?;
        assert_eq!(copy.copy_to_vec()?, [1, 7, 3], "{run}");
        let dropped = PoolBox::new(pool, 5_u8, &first)?;
        dropped.record_stream(&second)?;
        drop(dropped);
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
fn each_driver_call_below_handles_fails_once() {
    type Make = fn(&Device) -> Result<Box<dyn Pool>>;
    // The frees of driver memory are driver calls, which fail too.
    let pools: [Make; 2] = [
        |device| {
            let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(device))?;
            Ok(Box::new(pool))
        },
        |device| Ok(Box::new(SyncDriverAllocator::new(device))),
    ];
    for make in pools {
        let calls = each_call_fails_once("handles", |run| {
            if let Err(error) = make(&run.device).and_then(|pool| use_handles(run, &*pool)) {
                assert!(is_injected(&error), "{run}: {error}");
            }
        });
        assert!(calls.len() > 20, "{calls:?}");
    }
}
