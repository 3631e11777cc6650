//! Boxes: the streams on which they are used and freed.

use super::LONG_MICROS;
use crate::kernels::double;
use crate::prelude::*;
use crate::suite::each;

/// A box that moves to another stream is ordered after the work of the first one.
#[test]
fn a_box_moves_to_another_stream_after_all_previous_work() {
    each(|case, device, allocator| {
        let (module, first, second) = (module(device), device.stream().unwrap(), device.stream().unwrap());
        let mut one = PoolBox::new(&allocator, 0_u32, &first).unwrap();
        launch_linger(&first, &module, one.slice(), LONG_MICROS);
        one.move_to(&second).unwrap();
        assert_eq!(one.stream().id(), second.id(), "{case}");
        // SAFETY: one thread, ordered after the previous kernel.
        unsafe { second.launch(&module, double, &ONE, (one.slice(),)) }.unwrap();
        assert_eq!(one.get().unwrap(), 2, "{case} on {device}");
        let other = Device::cpu().stream().unwrap();
        assert!(matches!(one.move_to(&other), Err(Error::WrongDevice { .. })), "{case}");
        one.deallocate().unwrap();
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn a_box_is_freed_on_the_stream_that_is_named() {
    each(|case, device, allocator| {
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let one = PoolBox::new(&allocator, 4_u32, &first).unwrap();
        let failed = one.deallocate_on(&Device::cpu().stream().unwrap()).unwrap_err();
        assert!(matches!(failed.error(), Error::WrongDevice { .. }), "{case}");
        let one = failed.into_handle();
        assert_eq!(one.get().unwrap(), 4, "{case}");
        one.deallocate_on(&second).unwrap();
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}
