//! What allocators and handles print of themselves with `{:?}`: programs log them.

use crate::prelude::*;

fn shows(of: &dyn std::fmt::Debug, parts: &[&str]) {
    let text = format!("{of:?}");
    parts.iter().for_each(|part| assert!(text.contains(part), "{part:?} is not in: {text}"));
}

#[test]
fn allocators_print_their_kind_and_their_usage() {
    let (device, stream) = cpu();
    let memory = driver(&device);
    let block = alloc(&memory, layout(700, 8), &stream);
    shows(&memory, &["SyncDriverAllocator(CPU", "used_bytes: 700"]);
    free(&memory, block, &stream).unwrap();
    shows(&memory, &["used_bytes: 0"]);

    let pool = DriverPool::builder().build(&device).unwrap();
    let block = alloc(&pool, layout(1024, 8), &stream);
    shows(&pool, &["DriverPool(CPU", "used_bytes: 1024"]);
    free(&pool, block, &stream).unwrap();

    let blocks = block_pool(&device, layout(64, 64), 5);
    let block = alloc(&blocks, layout(64, 64), &stream);
    shows(&blocks, &["5 blocks", "4 of them free", &format!("{:#x}", blocks.address())]);
    shows(&Annotated::new("activations", &blocks), &["Annotated(", "activations", "4 of them free"]);
    shows(&Logged::new(&blocks, Vec::new()), &["Logged", "4 of them free"]);
    free(&blocks, block, &stream).unwrap();
}

#[test]
fn builders_print_their_hook() {
    shows(&CachingPool::builder().on_exhausted(|_| false), &["Hook"]);
}

/// What a program's own allocator needs: the other functions have defaults.
struct Plain(SyncDriverAllocator);

// SAFETY: forwards to `SyncDriverAllocator`, which upholds the contract of `DeviceAllocator`.
unsafe impl DeviceAllocator for Plain {
    fn device(&self) -> &Device {
        self.0.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        self.0.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller upholds the contract of `deallocate`, which is passed on.
        unsafe { self.0.deallocate(ptr, layout, stream) }
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

#[test]
fn an_allocator_without_a_report_of_its_own_reports_its_usage() {
    let (device, stream) = cpu();
    let plain = Plain(driver(&device));
    let block = alloc(&plain, layout(700, 8), &stream);
    let report = plain.report();
    assert_eq!(
        (report.allocator.as_str(), report.used_bytes, report.reserved_bytes),
        ("an allocator", 700, 700)
    );
    free(&plain, block, &stream).unwrap();
}

#[test]
fn memory_with_names_prints_its_pool_and_its_upstream() {
    let (device, _) = cpu();
    let pool = Annotated::over("weights", driver(&device), |memory| {
        shows(&memory, &["AnnotatedMemory(", "weights", "SyncDriverAllocator(CPU"]);
        let stream = memory.device().stream()?;
        let block = alloc(&memory, layout(96, 8), &stream);
        assert_eq!((memory.usage().used_bytes, memory.report().used_bytes), (96, 96));
        free(&memory, block, &stream)?;
        BlockPool::builder(layout(64, 64), 3).build_over(memory)
    });
    shows(&pool.unwrap(), &["Annotated(", "weights", "3 of them free"]);
}

#[test]
fn handles_and_failed_frees_print_their_values_and_their_error() {
    let (device, stream) = cpu();
    let failing = FailureInjected::new(driver(&device), Failures::Nth(2));
    let one = PoolBox::new(&failing, 7_u32, &stream).unwrap();
    let address = format!("{:#x}", one.address());
    shows(&one, &["1 × u32", &address]);
    let failed = one.deallocate().unwrap_err();
    shows(&failed, &["DeallocateError", "FailureInjected { call: 2 }"]);
}

#[test]
fn a_log_reader_prints_its_last_row() {
    let (device, stream) = cpu();
    let logged = Logged::new(driver(&device), Vec::new());
    let block = alloc(&logged, layout(4321, 8), &stream);
    free(&logged, block, &stream).unwrap();
    let (_, bytes) = logged.into_parts().unwrap();
    let mut reader = LogReader::new(&bytes[..]).unwrap();
    assert!(reader.has_tags());
    reader.read().unwrap().unwrap();
    shows(&reader, &["LogReader", "4321"]);
}
