//! Contents of handles: values, bounds, sizes, alignments.

use crate::kernels::double;
use crate::prelude::*;
use crate::suite::each;
use std::mem::MaybeUninit;
use warpheap::DeviceData;
use warpheap_device::kernel;

/// Larger than a cache line of the GPU, and aligned to more than any pool aligns by default.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(1024))]
struct Page([u32; 256]);

// SAFETY: consists of numbers only, without padding.
unsafe impl DeviceData for Page {}

#[test]
fn contents_survive_kernels_copies_and_neighbours() {
    each(|case, device, allocator| {
        let (module, stream) = (module(device), device.stream().unwrap());
        let lens = [1, 2, 3, 33, 1000, case.max.size() / 4];
        let values = |len: usize| (0..len as u32).map(|i| i * 3 + len as u32).collect::<Vec<_>>();
        let buffers: Vec<_> = lens
            .iter()
            .map(|len| PoolBuffer::from_slice(&allocator, &values(*len), &stream).unwrap())
            .collect();
        for buffer in &buffers {
            let grid = LaunchConfig::linear(buffer.len() as u32, 256);
            // SAFETY: there is a value for each thread, and the launch is on the buffer's stream.
            unsafe { stream.launch(&module, double, &grid, (buffer.slice(),)) }.unwrap();
        }
        let requested: u64 = buffers.iter().map(|buffer| buffer.bytes()).sum();
        assert!(allocator.usage().used_bytes >= requested, "{case}");
        for (len, buffer) in lens.into_iter().zip(&buffers) {
            assert_eq!((buffer.len(), buffer.bytes()), (len, 4 * len as u64));
            let wanted: Vec<u32> = values(len).iter().map(|value| value * 2).collect();
            assert_eq!(buffer.copy_to_vec().unwrap(), wanted, "{case} on {device}");
        }
        drop(buffers);
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn zeroed_and_fill_overwrite_previous_contents() {
    each(|case, device, allocator| {
        let (stream, len) = (device.stream().unwrap(), case.max.size() / 8);
        for round in 0..2 {
            let mut values = PoolBuffer::<u64, _>::zeroed(&allocator, len, &stream).unwrap();
            assert!(values.copy_to_vec().unwrap().iter().all(|value| *value == 0), "{case}, {round}");
            values.fill(0x0123_4567_89ab_cdef + round).unwrap();
            let mut copy = PoolBuffer::<u64, _>::zeroed(&allocator, len, &device.stream().unwrap()).unwrap();
            copy.copy_from(&values).unwrap();
            values.fill_bytes(0xa5).unwrap();
            assert_eq!(values.copy_to_vec().unwrap(), vec![0xa5a5_a5a5_a5a5_a5a5; len], "{case}");
            assert_eq!(copy.copy_to_vec().unwrap(), vec![0x0123_4567_89ab_cdef + round; len], "{case}");
            let mut one = PoolBox::<u64, _>::zeroed(&allocator, &stream).unwrap();
            assert_eq!(one.get().unwrap(), 0, "{case}");
            one.set(u64::MAX).unwrap();
            assert_eq!(one.into_buffer().copy_to_vec().unwrap(), [u64::MAX], "{case}");
        }
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn values_are_aligned_for_their_type() {
    each(|case, device, allocator| {
        let stream = device.stream().unwrap();
        let small = PoolBuffer::from_slice(&allocator, &[1_u8], &stream).unwrap();
        let pages: Vec<_> =
            (0..3).map(|i| PoolBox::new(&allocator, Page([i; 256]), &stream).unwrap()).collect();
        for (i, page) in (0..).zip(&pages) {
            assert!(page.address().is_multiple_of(1024), "{case}: {page:?}");
            assert_eq!(page.get().unwrap(), Page([i; 256]), "{case}");
        }
        assert_eq!((small.copy_to_vec().unwrap(), pages[0].bytes()), (vec![1], 1024));
    });
}

#[test]
fn a_kernel_initialises_uninitialised_memory() -> Result<()> {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream()?);
        let memory = driver(&device);
        let values = PoolBuffer::<u32, _>::new_uninit(&memory, 1, &stream)?;
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: one thread, and the kernel writes without reading.
        unsafe { stream.launch(&module, crate::kernels::linger, &one, (values.slice_to_init(), 1)) }?;
        // SAFETY: written by a kernel on the handle's stream.
        let values = unsafe { values.assume_init() };
        assert_eq!(values.copy_to_vec()?, [1]);
        let flag = PoolBox::<u32, _>::new_uninit(&memory, &stream)?;
        assert_eq!((flag.ptr_to_init().0 as u64, flag.bytes()), (flag.address(), 4));
    }
    Ok(())
}

#[test]
fn copies_out_of_bounds_fail_and_change_nothing() {
    let device = Device::cpu();
    let (memory, stream) = (driver(&device), device.stream().unwrap());
    let mut values = PoolBuffer::from_slice(&memory, &[1_u32, 2, 3], &stream).unwrap();
    let rejected = |done: Result<()>, words: &str| {
        let error = done.unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { .. }) && error.to_string().contains(words), "{error}");
    };
    rejected(values.write(2, &[8, 9]), "cannot copy 8 B at offset 8 B: the buffer holds 12 B");
    rejected(values.write(usize::MAX, &[9]), "the buffer holds 12 B");
    rejected(values.read(3, &mut [0]), "cannot copy 4 B at offset 12 B");
    rejected(values.copy_from_slice(&[9, 9]), "the buffer, exactly, holds 12 B");
    rejected(values.copy_from_slice(&[9; 4]), "cannot copy 16 B");
    let four = PoolBuffer::from_slice(&memory, &[9_u32; 4], &stream).unwrap();
    rejected(values.copy_from(&four), "cannot copy 16 B at offset 0 B: the buffer, exactly,");
    let mut two = [0; 2];
    values.read(1, &mut two).unwrap();
    values.write(3, &[]).unwrap();
    assert_eq!((values.copy_to_vec().unwrap(), two), (vec![1, 2, 3], [2, 3]));
    values.write(1, &[7]).unwrap();
    values.copy_from_slice(&values.copy_to_vec().unwrap().repeat(1)).unwrap();
    assert_eq!(values.copy_to_vec().unwrap(), [1, 7, 3]);
}

#[test]
fn sizes_that_overflow_are_reported() {
    let device = Device::cpu();
    let (memory, stream) = (Statistics::new(driver(&device)), device.stream().unwrap());
    for len in [usize::MAX, usize::MAX / 8 + 2, isize::MAX as usize / 8 + 1] {
        for error in [
            PoolBuffer::<u64, _>::new_uninit(&memory, len, &stream).unwrap_err(),
            PoolBuffer::<u64, _>::zeroed(&memory, len, &stream).unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidRequest(InvalidRequest::SizeOverflow { .. })), "{error}");
            assert!(
                error.to_string().contains(&format!("{len} values of 8 B exceed the address space")),
                "{error}"
            );
        }
    }
    // The size of these does not overflow, but exceeds the memory.
    let error = PoolBuffer::<u64, _>::zeroed(&memory, isize::MAX as usize / 8, &stream).unwrap_err();
    assert!(!matches!(error, Error::InvalidRequest(InvalidRequest::SizeOverflow { .. })), "{error}");
    assert_eq!(memory.stats().live_blocks, 0);
}

kernel! {
    /// Does nothing.
    ///
    /// # Safety
    /// No requirement.
    pub unsafe fn nothing(_values: DeviceSlice<[u32; 0]>, _none: DeviceSlice<u32>) {}
}

#[test]
fn zero_sized_handles_allocate_nothing() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (Statistics::new(driver(&device)), device.stream()?);
    let mut none = PoolBuffer::from_slice(&memory, &[0_u32; 0], &stream)?;
    let mut empty = PoolBuffer::from_slice(&memory, &[[0_u32; 0]; 5], &stream)?;
    let unit = PoolBox::new(&memory, [0_u64; 0], &stream)?;
    assert_eq!((none.len(), none.bytes(), none.address(), none.is_empty()), (0, 0, 0, true));
    assert_eq!((empty.len(), empty.bytes(), empty.address()), (5, 0, 0));
    none.fill(7)?;
    none.copy_from_slice(&[])?;
    none.fill_bytes(7)?;
    empty.fill([])?;
    empty.move_to(&device.stream()?)?;
    empty.record_stream(&stream)?;
    assert!(matches!(none.write(0, &[1]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(empty.write(5, &[[]]), Err(Error::OutOfBounds { .. })));
    assert_eq!((none.copy_to_vec()?, empty.copy_to_vec()?, unit.get()?), (vec![], vec![[]; 5], []));
    // A launch accepts empty slices, because they name no memory.
    let (module, args) = (device.native_module()?, (empty.slice(), none.slice()));
    // SAFETY: the kernel does nothing.
    unsafe { stream.launch(&module, nothing, &LaunchConfig::linear(5, 5), args) }?;
    // SAFETY: the parts come from a handle.
    unsafe { PoolBuffer::from_raw(none.into_raw()) }.deallocate_on(&stream)?;
    let other = Device::cpu().stream()?;
    assert!(matches!(empty.deallocate_on(&other).unwrap_err().error(), Error::WrongDevice { .. }));
    assert!(PoolBuffer::<u32, _>::zeroed(&memory, 0, &other).is_err(), "a stream of another device");
    drop(unit);
    stream.synchronize()?;
    assert_eq!((memory.stats().allocs, memory.stats().failed_allocs), (0, 0));
    Ok(())
}

#[test]
fn allocation_failures_are_returned() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = block_pool(&device, layout(64, 64), 1);
    let error = PoolBuffer::from_slice(&pool, &[1_u8; 65], &stream).unwrap_err();
    assert!(matches!(error, Error::InvalidRequest(InvalidRequest::Layout { .. })), "{error}");
    let error = PoolBox::new(&pool, Page([0; 256]), &stream).unwrap_err();
    assert!(error.to_string().contains("aligned to 1024"), "{error}");
    let _one = PoolBuffer::from_slice(&pool, &[1_u8; 64], &stream).unwrap();
    let error = PoolBox::new(&pool, 1_u8, &stream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })), "{error}");
}

#[test]
fn a_handle_over_an_arc_keeps_pool_and_device_alive() {
    let stream = Device::cpu().stream().unwrap();
    let pool =
        BlockPool::builder(layout(64, 64), 2).build_over(SyncDriverAllocator::new(stream.device())).unwrap();
    let pool: Arc<dyn DeviceAllocator> = Arc::new(pool);
    let values: PoolBuffer<u32> = PoolBuffer::from_slice(pool.clone(), &[4, 5, 6], &stream).unwrap();
    let one: PoolBox<u32> = PoolBox::new(pool, 9, &stream).unwrap();
    let device = stream.device().clone();
    drop(stream);
    assert_eq!((values.copy_to_vec().unwrap(), one.get().unwrap()), (vec![4, 5, 6], 9));
    drop(values);
    assert_eq!(device.memory_in_use(), (128, 1), "the other one still has the pool");
    drop(one);
    assert_eq!(device.memory_in_use(), (0, 0));
}

#[test]
fn a_handle_can_be_rebuilt_from_its_parts() -> Result<()> {
    let device = Device::cpu();
    let (memory, first, second) = (Statistics::new(driver(&device)), device.stream()?, device.stream()?);
    let values = PoolBuffer::from_slice(&memory, &[1_u32, 0x0101_0101, 3], &first)?;
    values.record_stream(&second)?;
    let address = values.address();
    let parts = values.into_raw();
    assert_eq!((parts.ptr.0 as u64, parts.len, parts.layout), (address, 3, layout(12, 4)));
    assert_eq!((parts.stream.id(), parts.recorded[0].id()), (first.id(), second.id()));
    assert!(format!("{parts:?}").contains("len: 3"), "{parts:?}");
    assert_eq!(memory.stats().live_blocks, 1, "nothing is freed");
    // As bytes, freed with the layout of the allocation.
    let parts = PoolParts {
        ptr: kernel::DevicePtr(parts.ptr.0.cast::<u8>()),
        len: 12,
        layout: parts.layout,
        stream: parts.stream,
        recorded: parts.recorded,
        allocator: parts.allocator,
    };
    // SAFETY: the parts come from a handle, and its values are valid as bytes.
    let bytes = unsafe { PoolBuffer::from_raw(parts) };
    assert_eq!(bytes.copy_to_vec()?[4..8], [1; 4]);
    bytes.deallocate()?;
    assert_eq!(memory.stats().live_blocks, 0);

    let one = PoolBox::new(&memory, 7_u64, &first)?;
    // SAFETY: the parts come from a handle.
    let one: PoolBox<u64, _> = unsafe { PoolBox::from_raw(one.into_raw()) };
    assert_eq!((one.get()?, one.allocator().stats().live_blocks), (7, 1));
    Ok(())
}

#[test]
fn the_debug_output_of_handles_names_contents_and_streams() {
    let device = Device::cpu();
    let (memory, stream) = (driver(&device), device.stream().unwrap());
    let values = PoolBuffer::<u32, _>::zeroed(&memory, 1024, &stream).unwrap();
    values.record_stream(&device.stream().unwrap()).unwrap();
    let words = format!("{values:?}");
    let wanted = format!("1024 × u32: 4096 B (4.0 KiB) at {:#x} of CPU", values.address());
    assert!(words.starts_with(&wanted), "{words}");
    assert!(words.ends_with(&format!("of stream {} and 1 others", stream.id())), "{words}");
}

/// The auto traits of a handle follow from its values.
#[test]
fn handles_are_send_and_sync_where_their_values_are() {
    fn both<H: Send + Sync>() {}
    both::<PoolBuffer<u32>>();
    both::<PoolBox<[f64; 3], &BlockPool<SyncDriverAllocator>>>();
    both::<PoolBuffer<MaybeUninit<u8>, Arc<SyncDriverAllocator>>>();
    assert!(
        size_of::<PoolBox<u32, &SyncDriverAllocator>>() <= 128,
        "{}",
        size_of::<PoolBox<u32, &SyncDriverAllocator>>()
    );
}
