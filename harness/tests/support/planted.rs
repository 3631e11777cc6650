//! Faults for the demonstrations: pools that do one thing wrong, and the steps that have to find it.

use super::Stage;
use super::gate::Gate;
use super::stage::Plant;
use crate::cli::backend::Chosen;
use crate::cli::console::Console;
use std::alloc::Layout;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use warpheap::alloc::{DeviceAllocator, DriverMemory, Usage};
use warpheap::{Device, Result, Stream, kernel_names};
use warpheap_device::kernel::DevicePtr;
use warpheap_harness::kernels::demo::{demo_hold, demo_let_go};

/// What a pool does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Blocks start one byte late.
    Misaligned,
    /// Every block is the first one, or every half of them lies on the other.
    Overlapping,
    /// What is refused is granted.
    Generous,
    /// What is refused takes a byte all the same.
    TakesOnRefusal,
    /// A free that is refused is none.
    TakesAnything,
    /// Frees do nothing.
    Keeps,
    /// The same, and each block takes 32 MiB more.
    Leaks,
    /// Whatever the stream, it is another one, so that nothing is in order.
    Unordered,
    /// The second block and those after it lie somewhere else.
    Elsewhere,
    /// Its figures are wrong.
    Miscounts,
    /// A reset does not look whether blocks are live.
    ResetsEarly,
    /// A reset does nothing.
    NeverResets,
    /// Its settings are others than were asked for.
    OtherSettings,
    /// A trim does nothing.
    NeverTrims,
    /// The last word of what it says to be there is not.
    Short,
    /// Threads allocate that only fill up the grid.
    WholeGrid,
}

/// More bytes of each block that leaks.
const LEAK: usize = 32 << 20;

/// What a pool with a fault gave out: what it said, and what that is.
struct Given {
    said: usize,
    block: DevicePtr<u8>,
    layout: Layout,
    is_elsewhere: bool,
}

/// A pool that has a fault.
pub struct Wrong<P: ?Sized> {
    pub fault: Fault,
    /// The stream of what is not in order.
    pub home: Stream,
    elsewhere: DriverMemory,
    given: Mutex<(Option<DevicePtr<u8>>, Vec<Given>)>,
    pub pool: Box<P>,
}

impl<P: DeviceAllocator + ?Sized> Wrong<P> {
    pub fn new(fault: Fault, pool: Box<P>) -> Wrong<P> {
        let home = pool.device().stream().unwrap();
        Wrong { fault, home, elsewhere: DriverMemory::new(pool.device()), given: Mutex::default(), pool }
    }

    pub fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The stream that the pool gets to see.
    pub fn seen<'a>(&'a self, stream: &'a Stream) -> &'a Stream {
        if self.is(Fault::Unordered) { &self.home } else { stream }
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

// SAFETY: it breaks these promises, for steps that look for that. What kernels get is live memory, with no one but the steps' own work in it.
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
            // SAFETY: allocated there.
            true => unsafe { self.elsewhere.deallocate(block, layout, stream) },
            // SAFETY: allocated there, or refused.
            false => unsafe { self.pool.deallocate(block, layout, self.seen(stream)) },
        };
        if self.is(Fault::TakesAnything) { Ok(()) } else { done }
    }

    fn usage(&self) -> Usage {
        self.pool.usage()
    }
}

/// What is planted: in a pool, on the stage, or both.
pub type Planted = (Option<Fault>, Option<Plant>);

pub const fn pool(fault: Fault) -> Planted {
    (Some(fault), None)
}

pub const fn stage(plant: Plant) -> Planted {
    (None, Some(plant))
}

/// The checks of a step by their names: all, and those that do not hold.
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
    // A fault may end it before its last check; without one, nothing does.
    let outcome = step(&mut stage, planted.0);
    assert!(planted != (None, None) || outcome.is_ok(), "{outcome:?}");
    let checks = stage.finish();
    let failed = checks.iter().filter(|check| !check.holds).map(|check| check.what.clone());
    let failed = failed.collect();
    (checks.into_iter().map(|check| check.what).collect(), failed)
}

/// What a step uses of a real one: that, or one with a fault in its place.
pub struct Make<R, U> {
    pub plain: fn(R) -> U,
    pub wrong: fn(Fault, R) -> U,
}

/// [`find_all`] for a step that makes all that it uses by what it is given.
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

/// Without a fault all checks of a step hold. With each fault those fail that are named with it, by how they begin; and there is no check that
/// none of the faults fails but those of `elsewhere`.
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
