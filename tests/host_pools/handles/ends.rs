//! How handles end if a call fails.

use crate::prelude::*;
use crate::suite::each;

type FailingPool = FailureInjected<Statistics<BlockPool<SyncDriverAllocator>>>;

fn failing(device: &Device, which: Failures) -> FailingPool {
    let pool = block_pool(device, layout(64, 64), 4);
    FailureInjected::new(Statistics::new(pool), which)
}

#[test]
fn a_failed_free_returns_the_handle_with_its_values() -> Result<()> {
    let device = Device::cpu();
    let (stream, other) = (device.stream()?, device.stream()?);
    for other_stream in [false, true] {
        let pool = failing(&device, Failures::Nth(2));
        let values = PoolBuffer::from_slice(&pool, &[1_u32, 2, 3], &stream)?;
        let failed = if other_stream { values.deallocate_on(&other) } else { values.deallocate() };
        let failed = failed.unwrap_err();
        assert!(matches!(failed.error(), Error::FailureInjected { call: 2 }), "{failed}");
        assert!(failed.to_string().contains("could not be freed: call 2"), "{failed}");
        assert!(std::error::Error::source(&failed).is_some());
        let values = failed.into_handle();
        assert_eq!(
            (values.copy_to_vec()?, pool.upstream().upstream().stats().free_blocks),
            (vec![1, 2, 3], 3)
        );
        values.deallocate_on(&other)?;
        assert_eq!(pool.upstream().upstream().stats().free_blocks, 4);
    }
    let pool = failing(&device, Failures::Nth(2));
    let (error, mut one) = PoolBox::new(&pool, 5_u8, &stream)?.deallocate().unwrap_err().into_parts();
    assert!(matches!(error, Error::FailureInjected { .. }));
    one.set(one.get()? + 1)?;
    assert_eq!(one.get()?, 6);
    Ok(())
}

#[test]
fn the_question_mark_operator_retries_the_free() {
    let device = Device::cpu();
    let (stream, pool) = (device.stream().unwrap(), failing(&device, Failures::Nth(2)));
    let run = || -> Result<()> {
        PoolBox::new(&pool, 1_u32, &stream)?.deallocate()?;
        Ok(())
    };
    assert!(matches!(run(), Err(Error::FailureInjected { call: 2 })));
    assert_eq!((pool.upstream().stats().live_blocks, pool.calls()), (0, 3));
}

#[test]
fn streams_of_another_device_are_rejected_and_the_handle_stays_usable() {
    each(|case, device, allocator| {
        let (stream, other) = (device.stream().unwrap(), Device::cpu().stream().unwrap());
        let is_rejected = |error: &Error| matches!(error, Error::WrongDevice { what: "the stream", .. });
        assert!(is_rejected(&PoolBox::new(&allocator, 1_u32, &other).unwrap_err()), "{case}");
        let mut values = PoolBuffer::from_slice(&allocator, &[1_u32], &stream).unwrap();
        assert!(is_rejected(&values.record_stream(&other).unwrap_err()), "{case}");
        assert!(is_rejected(&values.move_to(&other).unwrap_err()), "{case}");
        let failed = values.deallocate_on(&other).unwrap_err();
        assert!(is_rejected(failed.error()), "{case}");
        assert_eq!(failed.into_handle().copy_to_vec().unwrap(), [1], "{case}");
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn a_failed_free_in_a_drop_is_logged_and_retried() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let log = |which| {
        let pool = failing(&device, which);
        let values = PoolBuffer::from_slice(&pool, &[1_u32; 16], &stream);
        let text = crate::adaptors::events_of(|| drop(values));
        (text, pool.upstream().stats().live_blocks)
    };
    let (text, live) = log(Failures::Nth(3));
    assert_eq!((text.as_str(), live), ("", 0), "nothing failed");
    let (text, live) = log(Failures::Nth(2));
    assert!(text.contains("WARN") && text.contains("waited for the device to free its block"), "{text}");
    assert!(text.contains("bytes=64") && text.contains("call 2 of an allocator failed"), "{text}");
    assert_eq!((text.lines().count(), live), (1, 0), "{text}");
}

#[test]
fn two_failed_frees_in_a_drop_are_logged_with_both_errors() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = block_pool(&device, layout(64, 64), 4);
    let parts = PoolBuffer::from_slice(&pool, &[1_u32; 16], &stream).unwrap().into_raw();
    let always = FailureInjected::new(&pool, Failures::OneIn(NonZeroU64::MIN, 0));
    let PoolParts { ptr, len, layout, stream, recorded, .. } = parts;
    let parts = PoolParts { ptr, len, layout, stream, recorded, allocator: &always };
    // SAFETY: the parts of a handle, with an adaptor over its pool.
    let values = unsafe { PoolBuffer::from_raw(parts) };
    assert_eq!(values.copy_to_vec().unwrap(), [1; 16]);
    let text = crate::adaptors::events_of(|| drop(values));
    assert!(text.contains("WARN") && text.contains("a handle could not free its block"), "{text}");
    assert!(text.contains("call 1 of an") && text.contains("call 2 of an"), "{text}");
    assert_eq!((always.calls(), pool.stats().free_blocks), (2, 3), "tried twice, and still the pool's");
}

/// A handle over a block of another allocator is a broken promise. Its drop logs that, and neither
/// panics nor retries.
#[test]
fn a_foreign_block_is_logged_with_its_address() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let (right, wrong) = (driver(&device), Statistics::new(driver(&device)));
    let PoolParts { ptr, len, layout, stream, recorded, .. } =
        PoolBuffer::from_slice(&right, &[1_u32], &stream).unwrap().into_raw();
    let parts = PoolParts { ptr, len, layout, stream, recorded, allocator: &wrong };
    // SAFETY: not upheld on purpose: the block belongs to another allocator. The pool detects that.
    let values = unsafe { PoolBuffer::from_raw(parts) };
    let text = crate::adaptors::events_of(|| drop(values));
    assert!(text.contains("cannot free") && text.contains(&format!("address={}", ptr.0 as u64)), "{text}");
    assert_eq!((wrong.stats().failed_frees, right.usage().used_bytes), (1, 4));
}
