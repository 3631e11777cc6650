//! The same below handles.

use super::rig::Rig;
use super::{BROKEN, NO_MEMORY};
use crate::alloc::{CachingPool, DeviceAllocator, DriverMemory, PoolBuffer};
use crate::driver::flawed::Which;
use crate::error::Result;

/// Makes a pool, and handles that are copied, moved, shared and freed; what was told of is returned.
fn use_handles(rig: &Rig) -> Result<()> {
    let device = &rig.device;
    let (first, second) = (device.stream()?, device.stream()?);
    let pool = CachingPool::builder().over(DriverMemory::new(device))?;
    let used = || -> Result<()> {
        let mut values = PoolBuffer::from_slice(&pool, &[1_u32, 2, 3], &first)?;
        values.write(1, &[7])?;
        assert_eq!(values.copy_to_vec()?, [1, 7, 3], "{rig}");
        let mut copy = PoolBuffer::<u32, _>::zeroed(&pool, 3, &second)?;
        copy.copy_from(&values)?;
        values.record_stream(&second)?;
        values.move_to(&second)?;
        copy.record_stream(&first)?;
        assert_eq!(copy.copy_to_vec()?, [1, 7, 3], "{rig}");
        copy.free_on(&first).map_err(|failed| failed.into_parts().0)?;
        values.free().map_err(|failed| failed.into_parts().0)
    };
    let told = used();
    // Handles that were dropped on the way tried again by themselves.
    assert_eq!(pool.usage().used_bytes, 0, "{rig}");
    pool.check();
    told
}

#[test]
fn each_call_of_the_driver_fails_once_below_handles() {
    let rig = Rig::new("handles", Which::Never, BROKEN, true);
    use_handles(&rig).unwrap();
    let calls = rig.faults.calls();
    assert!(calls > 20, "{calls}");
    for code in [BROKEN, NO_MEMORY] {
        for nth in 1..=calls {
            let rig = Rig::new("handles", Which::Nth(nth), code, true);
            if let Err(error) = use_handles(&rig) {
                assert!(error.to_string().contains("was told to fail"), "{rig}: {error}");
            }
            assert_eq!((rig.faults.failed().len(), rig.faults.held()), (1, Vec::new()), "{rig}");
            assert_eq!(rig.device.memory_in_use(), (0, 0), "{rig}");
        }
    }
}
