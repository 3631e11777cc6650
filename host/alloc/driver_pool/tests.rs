//! Each call of the driver's fails once, and all is as before it.

use super::*;
use crate::error::{InvalidFree, OutOfMemory};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A pool of the CPU's whose calls are counted, and of which one fails.
struct Flawed {
    inner: Arc<dyn PoolBackend>,
    calls: AtomicUsize,
    fails: usize,
    error: fn() -> Error,
}

impl Flawed {
    fn over(device: &Device, fails: usize, error: fn() -> Error) -> Arc<Flawed> {
        let inner = device.driver().new_pool(None).unwrap();
        Arc::new(Flawed { inner, calls: AtomicUsize::new(0), fails, error })
    }

    fn call(&self) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call == self.fails { Err((self.error)()) } else { Ok(()) }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl PoolBackend for Flawed {
    fn alloc(&self, bytes: u64, stream: &Stream) -> Result<u64> {
        self.call()?;
        self.inner.alloc(bytes, stream)
    }

    unsafe fn free(&self, address: u64, stream: &Stream) -> Result<()> {
        self.call()?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(address, stream) }
    }

    fn trim_to(&self, keep: u64) -> Result<()> {
        self.call()?;
        self.inner.trim_to(keep)
    }

    fn get(&self, attribute: PoolAttribute) -> Result<u64> {
        self.call()?;
        self.inner.get(attribute)
    }

    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        self.call()?;
        self.inner.set(attribute, value)
    }

    fn key(&self) -> usize {
        self.inner.key()
    }
}

fn refused() -> Error {
    Error::Driver { call: "cuMem", code: 2, name: "FLAWED".into(), detail: "told to".into() }
}

fn insist<T>(failures: &mut usize, mut call: impl FnMut() -> Result<T>) -> T {
    loop {
        match call() {
            Ok(done) => return done,
            Err(Error::Driver { name, .. }) if name == "FLAWED" => *failures += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes it, uses all of it, and lets it go; how many calls of the driver's there were.
fn use_it(device: &Device, nth: usize) -> usize {
    let (driver, mut told) = (Flawed::over(device, nth, refused), 0);
    let stream = device.stream().unwrap();
    let builder = DriverPool::builder(device).release_threshold(1 << 20);
    let pool = insist(&mut told, || builder.clone().apply(DriverPool::over(device, driver.clone(), None)?));
    let layout = |size, align| Layout::from_size_align(size, align).unwrap();
    let mut blocks = Vec::new();
    for of in [layout(1, 1), layout(5000, 256), layout(100, 4096), layout(3 << 20, 2 << 20)] {
        let ptr = insist(&mut told, || pool.allocate(of, &stream));
        assert!(ptr.0.addr().is_multiple_of(of.align()));
        blocks.push((ptr, of));
    }
    assert_eq!(device.memory_in_use(), (1 + 5000 + 100 + (3 << 20), 4), "launches know them");
    let stats = insist(&mut told, || pool.stats());
    assert_eq!((stats.live_blocks, stats.release_threshold), (4, 1 << 20));
    for (ptr, of) in blocks {
        // SAFETY: no work uses it.
        insist(&mut told, || unsafe { pool.deallocate(ptr, of, &stream) });
    }
    assert_eq!(device.memory_in_use(), (0, 0));
    assert_eq!(insist(&mut told, || pool.used_bytes()), 0);
    insist(&mut told, || pool.reset_high_water());
    insist(&mut told, || pool.set_release_threshold(0));
    insist(&mut told, || pool.trim_to(0));
    assert_eq!(insist(&mut told, || pool.reuse()), ReusePolicies::default());
    assert_eq!(told, usize::from(0 < nth && nth <= driver.calls()), "call {nth}");
    driver.calls()
}

#[test]
fn each_call_of_the_driver_fails_once() {
    let device = Device::cpu();
    let calls = use_it(&device, 0);
    assert!(calls > 20);
    for nth in 1..=calls {
        use_it(&device, nth);
        device.synchronize().unwrap();
        assert_eq!(
            device.info().unwrap().memory_free,
            device.info().unwrap().memory_total,
            "call {nth} leaks"
        );
    }
}

/// A free that fails leaves the block as it was: live, in the registry, with its layout.
#[test]
fn a_block_whose_free_failed_is_still_its_owners() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = DriverPool::over(&device, Flawed::over(&device, 2, refused), None).unwrap();
    let layout = Layout::from_size_align(1000, 1024).unwrap();
    let ptr = pool.allocate(layout, &stream).unwrap();
    let range = Range { address: address_of(ptr), bytes: 1000 };
    // SAFETY: no work uses it.
    let free = || unsafe { pool.deallocate(ptr, layout, &stream) };
    assert!(matches!(free(), Err(Error::Driver { .. })));
    assert!(device.registry().holds(range) && pool.usage().used_bytes == 2024);
    free().unwrap();
    assert!(!device.registry().holds(range) && pool.usage().used_bytes == 0);
    assert!(matches!(free(), Err(Error::InvalidFree(InvalidFree::Block { .. }))));
}

#[test]
fn when_memory_runs_out_the_figures_are_the_pools() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let full = || {
        Error::OutOfMemory(OutOfMemory::Device {
            device: "a GPU".into(),
            requested: Bytes(1),
            free: Bytes(5),
            total: Bytes(7),
            advice: "ask for less".into(),
        })
    };
    let pool = DriverPool::over(&device, Flawed::over(&device, 2, full), None).unwrap();
    let layout = Layout::from_size_align(4096, 256).unwrap();
    pool.allocate(layout, &stream).unwrap();
    let error = pool.allocate(layout, &stream).unwrap_err();
    let Error::OutOfMemory(OutOfMemory::Device { requested: Bytes(4096), free: Bytes(5), advice, .. }) =
        &error
    else {
        panic!("{error}")
    };
    let figures = ["has 2097152 B (2.0 MiB)", "4096 B (4.0 KiB) are in use", "trim_to"];
    assert!(figures.iter().all(|words| advice.contains(words)), "{error}");
    drop(pool);
    assert_eq!(device.memory_in_use(), (0, 0));
}

#[test]
fn handles_of_one_pool_know_each_other_and_others_not() {
    let device = Device::cpu();
    let pools = [DriverPool::default_of(&device), DriverPool::current_of(&device), DriverPool::new(&device)];
    let [default, current, own] = pools.map(Result::unwrap);
    assert!(default.is_same(&current) && current.is_same(&default));
    assert!(!default.is_same(&own) && !default.is_same(&DriverPool::default_of(&Device::cpu()).unwrap()));
}

/// What is still allocated goes back at the end, also if one of the frees fails, which is tried once more.
#[test]
fn its_end_gives_back_what_is_allocated() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    for fails in [0, 4, 5] {
        let driver = Flawed::over(&device, fails, refused);
        let pool = DriverPool::over(&device, driver.clone(), None).unwrap();
        for _ in 0..3 {
            pool.allocate(Layout::new::<[u64; 100]>(), &stream).unwrap();
        }
        drop(pool);
        assert_eq!(driver.calls(), if fails == 0 { 6 } else { 7 }, "three frees");
        assert_eq!(driver.inner.get(PoolAttribute::UsedCurrent).unwrap(), 0);
        assert_eq!(device.memory_in_use(), (0, 0));
    }
}
