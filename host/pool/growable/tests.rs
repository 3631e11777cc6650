//! Every step of a growth fails once, and the buffer is as it was.

use super::*;
use crate::driver::{Backend, Pages, Range};
use crate::error::OutOfMemory;
use crate::simt::{Executor, Mode};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 64 * MIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reserve,
    Create,
    Map,
    Allow,
    Unmap,
}

#[derive(Default)]
struct State {
    /// The step that fails from now on.
    failing: Option<Step>,
    created: Vec<Pages>,
    /// By their addresses.
    mapped: BTreeSet<u64>,
    reserved: BTreeSet<u64>,
    /// Steps in the wrong order.
    misuses: Vec<String>,
}

/// The device's own virtual memory, whose steps fail as they are told, and which writes down what is not undone yet.
struct Flawed {
    inner: Arc<dyn VirtualMemory>,
    state: Mutex<State>,
}

impl Flawed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn step(&self, step: Step) -> Result<()> {
        let name = || format!("{step:?}");
        match self.state().failing == Some(step) {
            true => Err(Error::Driver { call: "a step", code: 999, name: name(), detail: "as told".into() }),
            false => Ok(()),
        }
    }

    fn expect(&self, is_right: bool, what: &str) {
        if !is_right {
            self.state().misuses.push(what.into());
        }
    }

    /// Reservations, pieces of memory and mappings that there are.
    fn counts(&self) -> (usize, usize, usize) {
        let state = self.state();
        assert_eq!(state.misuses, [""; 0]);
        (state.reserved.len(), state.created.len(), state.mapped.len())
    }
}

impl VirtualMemory for Flawed {
    fn granularity(&self) -> u64 {
        self.inner.granularity()
    }

    fn reserve(&self, bytes: u64, align: u64) -> Result<Range> {
        self.step(Step::Reserve)?;
        let range = self.inner.reserve(bytes, align)?;
        self.state().reserved.insert(range.address);
        Ok(range)
    }

    unsafe fn unreserve(&self, range: Range) -> Result<()> {
        let was_there = self.state().reserved.remove(&range.address);
        self.expect(was_there && self.state().mapped.is_empty(), "addresses go while something is mapped");
        // SAFETY: the caller's promise.
        unsafe { self.inner.unreserve(range) }
    }

    fn create(&self, bytes: u64) -> Result<Pages> {
        self.step(Step::Create)?;
        let pages = self.inner.create(bytes)?;
        self.state().created.push(pages);
        Ok(pages)
    }

    unsafe fn release(&self, pages: Pages) -> Result<()> {
        let place = self.state().created.iter().position(|created| *created == pages);
        self.expect(place.is_some(), "memory goes twice");
        self.state().created.remove(place.unwrap());
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(pages) }
    }

    unsafe fn map(&self, range: Range, pages: Pages) -> Result<()> {
        self.step(Step::Map)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.map(range, pages) }?;
        let is_new = self.state().mapped.insert(range.address);
        self.expect(is_new, "mapped twice");
        Ok(())
    }

    unsafe fn unmap(&self, range: Range) -> Result<()> {
        self.step(Step::Unmap)?;
        let was_there = self.state().mapped.remove(&range.address);
        let has_memory = {
            let state = self.state();
            state.created.len() == state.mapped.len() + 1
        };
        self.expect(was_there && has_memory, "unmapped twice, or behind its memory");
        // SAFETY: the caller's promise.
        unsafe { self.inner.unmap(range) }
    }

    unsafe fn allow(&self, range: Range) -> Result<()> {
        self.step(Step::Allow)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.allow(range) }
    }
}

/// A device of [`TOTAL`] on the CPU, and the first GPU where there is one. With `WARPHEAP_REQUIRE_CUDA=1` there must be.
fn devices() -> Vec<Device> {
    let cpu = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), TOTAL);
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let gpu = Device::cuda(0).ok();
    assert!(!required || gpu.is_some(), "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU");
    [cpu].into_iter().chain(gpu).collect()
}

/// What the device has given out; nothing of a GPU, which other tests use at the same time.
fn in_use(device: &Device) -> (u64, usize) {
    if device.backend() == Backend::Cpu { device.memory_in_use() } else { (0, 0) }
}

fn flawed(device: &Device) -> Arc<Flawed> {
    let inner = device.driver().virtual_memory().unwrap();
    Arc::new(Flawed { inner, state: Mutex::default() })
}

/// A buffer with 4 MiB of sevens, and what it stands on.
fn buffer(device: &Device) -> (GrowableBuffer, Arc<Flawed>) {
    let driver = flawed(device);
    let mut buffer = GrowableBuffer::over(device, driver.clone(), 32 * MIB, 1).unwrap();
    buffer.grow_to(4 * MIB).unwrap();
    buffer.fill_part(0, 4 * MIB, 7).unwrap();
    (buffer, driver)
}

fn assert_sevens(buffer: &GrowableBuffer) {
    let mut bytes = vec![0_u8; 4 << 20];
    buffer.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
}

#[test]
fn a_step_that_fails_leaves_the_buffer_as_it_was() {
    for device in devices() {
        for step in [Step::Create, Step::Map, Step::Allow] {
            let (mut buffer, driver) = buffer(&device);
            let before = in_use(&device);
            for to in [6 * MIB, 32 * MIB] {
                driver.state().failing = Some(step);
                let error = buffer.grow_to(to).unwrap_err();
                assert!(error.to_string().contains(&format!("{step:?}")), "{error}");
                assert_eq!(driver.counts(), (1, 1, 1), "{step:?} is undone");
                assert_eq!((buffer.size(), in_use(&device)), (4 * MIB, before));
                assert!(matches!(buffer.slice_at::<u8>(4 * MIB, 1), Err(Error::OutOfBounds { .. })));
                assert_sevens(&buffer);
            }
            driver.state().failing = None;
            assert_eq!(buffer.grow_to(8 * MIB).unwrap(), 8 * MIB, "as if nothing had been");
            buffer.write(8 * MIB - 4, &[9_u32]).unwrap();
            assert_sevens(&buffer);
            drop(buffer);
            assert_eq!(driver.counts(), (0, 0, 0));
        }
    }
}

#[test]
fn a_first_growth_that_fails_leaves_an_empty_buffer() {
    for device in devices() {
        for step in [Step::Create, Step::Map, Step::Allow] {
            let driver = flawed(&device);
            let mut buffer = GrowableBuffer::over(&device, driver.clone(), 32 * MIB, 1).unwrap();
            driver.state().failing = Some(step);
            buffer.grow_to(1).unwrap_err();
            assert_eq!((buffer.size(), driver.counts()), (0, (1, 0, 0)));
            drop(buffer);
            assert_eq!(driver.counts(), (0, 0, 0));
        }
    }
}

#[test]
fn addresses_that_cannot_be_had_are_an_error() {
    for device in devices() {
        let driver = flawed(&device);
        driver.state().failing = Some(Step::Reserve);
        let before = in_use(&device);
        GrowableBuffer::over(&device, driver.clone(), MIB, 1).unwrap_err();
        assert_eq!((driver.counts(), in_use(&device)), ((0, 0, 0), before));
    }
}

#[test]
fn what_the_driver_does_not_take_back_is_still_there() {
    for device in devices() {
        let (mut buffer, driver) = buffer(&device);
        buffer.grow_to(8 * MIB).unwrap();
        driver.state().failing = Some(Step::Unmap);
        buffer.shrink_to(0).unwrap_err();
        assert_eq!((buffer.size(), driver.counts()), (8 * MIB, (1, 2, 2)));
        assert_sevens(&buffer);
        driver.state().failing = None;
        assert_eq!(buffer.shrink_to(4 * MIB).unwrap(), 4 * MIB);
        assert_sevens(&buffer);
        assert_eq!(buffer.shrink_to(0).unwrap(), 0);
        assert_eq!(driver.counts(), (1, 0, 0));
    }
}

#[test]
fn the_cap_of_the_cpu_counts_what_has_memory() {
    let device = devices().remove(0);
    let free = || device.info().unwrap().memory_free;
    let mut buffer = GrowableBuffer::reserve(&device, 1 << 40).unwrap();
    assert_eq!((free(), buffer.reserved()), (TOTAL, 1 << 40));
    buffer.grow_to(40 * MIB).unwrap();
    assert_eq!(free(), TOTAL - 40 * MIB);
    let error = buffer.grow_to(66 * MIB).unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory(OutOfMemory::Device { free: Bytes(free), .. }) if free == TOTAL - 40 * MIB),
        "{error}"
    );
    assert_eq!((buffer.size(), free()), (40 * MIB, TOTAL - 40 * MIB));
    buffer.shrink_to(0).unwrap();
    assert_eq!(free(), TOTAL);
    buffer.grow_to(2 * MIB).unwrap();
    drop(buffer);
    assert_eq!(free(), TOTAL);
}
