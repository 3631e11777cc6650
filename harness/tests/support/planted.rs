//! Faults for the demonstrations: pools with one fault each, and the steps that must detect it.

use super::Stage;
use super::gate::Gate;
use super::stage::Plant;
use crate::cli::backend::Chosen;
use crate::cli::console::Console;
use std::alloc::Layout;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use warpheap::host_pools::{DeviceAllocator, SyncDriverAllocator, Usage};
use warpheap::{Device, Result, Stream, kernel_names};
use warpheap_device::kernel::DevicePtr;
use warpheap_harness::kernels::demo::{demo_hold, demo_let_go};

/// The fault of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Blocks start one byte late.
    Misaligned,
    /// All blocks have the same address, or the second half of them overlaps the first.
    Overlapping,
    /// Calls that must fail succeed.
    Generous,
    /// A failed allocation consumes memory.
    TakesOnRefusal,
    /// A rejected free is reported as success.
    TakesAnything,
    /// Frees do nothing.
    Keeps,
    /// Frees do nothing, and each block takes 32 MiB more.
    Leaks,
    /// All work is ordered on a different stream, so nothing is ordered with the caller's.
    Unordered,
    /// The second block and all later ones come from other memory.
    Elsewhere,
    /// Its statistics are wrong.
    Miscounts,
    /// A reset does not check whether blocks are live.
    ResetsEarly,
    /// A reset does nothing.
    NeverResets,
    /// Its settings differ from the requested ones.
    OtherSettings,
    /// A trim does nothing.
    NeverTrims,
    /// The last word of its memory is missing.
    Short,
    /// The threads that only pad the grid allocate, too.
    WholeGrid,
}

/// Additional bytes of each leaked block.
const LEAK: usize = 32 << 20;

/// A block of a faulty pool: the address that was returned, and the actual block.
struct Given {
    said: usize,
    block: DevicePtr<u8>,
    layout: Layout,
    is_elsewhere: bool,
}

/// A pool with a fault.
pub struct Wrong<P: ?Sized> {
    pub fault: Fault,
    /// The stream of unordered work.
    pub other_stream: Stream,
    elsewhere: SyncDriverAllocator,
    given: Mutex<(Option<DevicePtr<u8>>, Vec<Given>)>,
    pub pool: Box<P>,
}

impl<P: DeviceAllocator + ?Sized> Wrong<P> {
    pub fn new(fault: Fault, pool: Box<P>) -> Wrong<P> {
        let other_stream = pool.device().stream().unwrap();
        Wrong {
            fault,
            other_stream,
            elsewhere: SyncDriverAllocator::new(pool.device()),
            given: Mutex::default(),
            pool,
        }
    }

    pub fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The stream that is passed to the pool.
    pub fn seen<'a>(&'a self, stream: &'a Stream) -> &'a Stream {
        if self.is(Fault::Unordered) { &self.other_stream } else { stream }
    }

    fn granted(&self, layout: Layout, stream: &Stream, is_elsewhere: bool) -> Result<DevicePtr<u8>> {
        let larger = if self.is(Fault::Leaks) { LEAK } else { 0 };
        let layout = match self.fault {
            Fault::Misaligned => Layout::from_size_align(layout.size() + 1, 1).unwrap(),
            _ => Layout::from_size_align(layout.size() + larger, layout.align()).unwrap_or(layout),
        };
        let block = match is_elsewhere {
            true => self.elsewhere.allocate(layout, stream)?,
            false => self.pool.allocate(layout, self.seen(stream))?,
        };
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *given.0.get_or_insert(block);
        let said = match self.fault {
            Fault::Misaligned => DevicePtr(block.0.wrapping_add(1)),
            Fault::Overlapping => first,
            _ => block,
        };
        given.1.push(Given { said: said.0.addr(), block, layout, is_elsewhere });
        Ok(said)
    }
}

// SAFETY: not upheld on purpose, for steps that detect it. Kernels get only live memory that
// nothing but the step's own work uses.
unsafe impl<P: DeviceAllocator + ?Sized> DeviceAllocator for Wrong<P> {
    fn device(&self) -> &Device {
        self.pool.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let is_first = self.given.lock().unwrap_or_else(PoisonError::into_inner).0.is_none();
        let granted = self.granted(layout, stream, self.is(Fault::Elsewhere) && !is_first);
        match self.fault {
            Fault::Generous => granted.or(Ok(DevicePtr(std::ptr::without_provenance_mut(256)))),
            Fault::TakesOnRefusal => {
                granted.inspect_err(|_| drop(self.pool.allocate(Layout::new::<u8>(), stream)))
            }
            _ => granted,
        }
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        if self.is(Fault::Leaks) || self.is(Fault::Keeps) {
            return Ok(());
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let size = |given: &Given| given.layout.size() - usize::from(self.is(Fault::Misaligned));
        let is_it = |given: &Given| given.said == ptr.0.addr() && size(given) == layout.size();
        let found = given.1.iter().rposition(is_it).map(|at| given.1.swap_remove(at));
        drop(given);
        let (block, layout, is_elsewhere) =
            found.map_or((ptr, layout, false), |given| (given.block, given.layout, given.is_elsewhere));
        let done = match is_elsewhere {
            // SAFETY: allocated from `elsewhere`.
            true => unsafe { self.elsewhere.deallocate(block, layout, stream) },
            // SAFETY: allocated from `pool`, or rejected by it.
            false => unsafe { self.pool.deallocate(block, layout, self.seen(stream)) },
        };
        if self.is(Fault::TakesAnything) { Ok(()) } else { done }
    }

    fn usage(&self) -> Usage {
        self.pool.usage()
    }
}

/// The planted faults: in a pool, on the stage, or both.
pub type Planted = (Option<Fault>, Option<Plant>);

pub const fn pool(fault: Fault) -> Planted {
    (Some(fault), None)
}

pub const fn stage(plant: Plant) -> Planted {
    (None, Some(plant))
}

/// The names of all checks of a step, and of those that failed.
fn play(
    kernels: &[&'static str],
    planted: Planted,
    step: &dyn Fn(&mut Stage<'_>, Option<Fault>) -> Result<()>,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let kernels = [kernels, &kernel_names![demo_hold, demo_let_go]].concat();
    let chosen = Chosen::cpu(None, &kernels).unwrap_or_else(|error| panic!("{}", error.message));
    let console = Console::new(None);
    let mut stage = Stage::new(&chosen.device, chosen.module(), &console).unwrap();
    let is_disorder = planted.0 == Some(Fault::Unordered) || planted.1 == Some(Plant::NoWaits);
    stage.plant = planted.1;
    stage.gate = is_disorder.then(|| Gate::new(chosen.module(), chosen.device.stream().unwrap()));
    println!("planted: {planted:?}");
    // A fault may end the step before its last check. Without a fault nothing does.
    let outcome = step(&mut stage, planted.0);
    assert!(planted != (None, None) || outcome.is_ok(), "{outcome:?}");
    let checks = stage.finish();
    let failed = checks.iter().filter(|check| !check.holds).map(|check| check.what.clone());
    let failed = failed.collect();
    (checks.into_iter().map(|check| check.what).collect(), failed)
}

/// How to make the object that a step uses: the real one, or one with a fault.
pub struct Make<R, U> {
    pub plain: fn(R) -> U,
    pub wrong: fn(Fault, R) -> U,
}

/// [`find_all`] for a step that takes a function to wrap all objects it uses.
pub fn find_made<R, U>(
    kernels: &[&'static str],
    step: fn(&mut Stage<'_>, &dyn Fn(R) -> U) -> Result<()>,
    make: &Make<R, U>,
    faults: &[(Planted, &[&str])],
    elsewhere: &[&str],
) {
    let step = |stage: &mut Stage<'_>, fault: Option<Fault>| match fault {
        Some(fault) => step(stage, &|real| (make.wrong)(fault, real)),
        None => step(stage, &make.plain),
    };
    find_all(kernels, &step, faults, elsewhere);
}

/// Asserts that all checks of a step pass without a fault, and that each fault fails the checks
/// listed with it by prefix. Every check must be failed by at least one fault, except for those in
/// `elsewhere`.
pub fn find_all(
    kernels: &[&'static str],
    step: &dyn Fn(&mut Stage<'_>, Option<Fault>) -> Result<()>,
    faults: &[(Planted, &[&str])],
    elsewhere: &[&str],
) {
    let (mut left, failed) = play(kernels, (None, None), step);
    assert!(failed.is_empty(), "without a fault: {failed:?}");
    for (planted, named) in faults {
        let (_, failed) = play(kernels, *planted, step);
        for name in *named {
            let is_found = failed.iter().any(|what| what.starts_with(name));
            assert!(is_found, "{planted:?} is not found by `{name}`, but by {failed:?}");
        }
        left.retain(|what| !failed.contains(what));
    }
    left.retain(|what| !elsewhere.iter().any(|name| what.starts_with(name)));
    assert!(left.is_empty(), "no fault fails these: {left:?}");
}
