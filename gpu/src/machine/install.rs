//! The machine that is installed on an OS thread.

use super::interface::{Collective, Coords, Deposits, Machine};
use crate::units::LaneMask;
use core::panic::Location;
use core::ptr::NonNull;
use std::cell::Cell;

std::thread_local! {
    static INSTALLED: Cell<Option<*const dyn Machine>> = const { Cell::new(None) };
    /// The coordinates of the running lane, if the installed machine provides them here. Null when
    /// no lane runs.
    static STANDS_AT: Cell<*const Coords> = const { Cell::new(core::ptr::null()) };
}

/// A guard that restores the previously installed machine on drop.
#[must_use = "the machine is removed when this is dropped"]
#[derive(Debug)]
pub struct Installed {
    before: Option<*const dyn Machine>,
    stood_at: *const Coords,
}

/// Installs `machine` on this OS thread until the returned guard is dropped.
///
/// # Safety
/// The guard is dropped, not forgotten, before the machine is dropped or moved. Guards are dropped
/// in the reverse order of their creation.
pub unsafe fn install(machine: &dyn Machine) -> Installed {
    // SAFETY: the lifetime is erased here. The caller keeps the machine alive longer than the
    // guard, and the drop of the guard removes the pointer.
    let erased: *const (dyn Machine + 'static) = unsafe { core::mem::transmute(machine) };
    Installed { before: INSTALLED.replace(Some(erased)), stood_at: STANDS_AT.replace(core::ptr::null()) }
}

/// Sets the coordinates of the running lane of this OS thread, so that [`Machine::coords`] is not
/// called. Set them to null when the lane ends; `coords` is then called again.
///
/// # Safety
/// `coords` is null, or live and unchanged until the next call or until the machine's guard is
/// dropped.
#[inline]
pub unsafe fn stand_at(coords: *const Coords) {
    STANDS_AT.set(coords);
}

/// Whether a lane runs on this OS thread, as far as [`stand_at`] tells.
pub fn runs_a_lane() -> bool {
    !STANDS_AT.get().is_null()
}

/// Calls `f` without a running lane: what it allocates is not the lane's.
pub fn outside_lane<R>(f: impl FnOnce() -> R) -> R {
    struct Back(*const Coords);
    impl Drop for Back {
        fn drop(&mut self) {
            STANDS_AT.set(self.0);
        }
    }
    // Also if `f` panics.
    let _back = Back(STANDS_AT.replace(core::ptr::null()));
    f()
}

impl Drop for Installed {
    fn drop(&mut self) {
        INSTALLED.set(self.before);
        STANDS_AT.set(self.stood_at);
    }
}

/// Calls `f` on the installed machine, or on `SoleLane` if there is none.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&dyn Machine) -> R) -> R {
    let machine: &dyn Machine = match INSTALLED.get() {
        // SAFETY: `install` keeps the machine alive while it is installed.
        Some(machine) => unsafe { &*machine },
        None => &SoleLane,
    };
    f(machine)
}

/// Calls `f` on the coordinates of the running lane.
#[inline]
pub(crate) fn at<R>(f: impl FnOnce(&Coords) -> R) -> R {
    let coords = STANDS_AT.get();
    if coords.is_null() {
        return f(&with(|m| m.coords()));
    }
    // SAFETY: the caller of `stand_at` keeps them live and unchanged.
    f(unsafe { &*coords })
}

/// Called before every atomic operation on the host.
#[inline]
#[cfg_attr(loom, allow(dead_code))]
pub(crate) fn step() {
    if let Some(machine) = INSTALLED.get() {
        // SAFETY: `install` keeps the machine alive while it is installed.
        unsafe { &*machine }.step()
    }
}

/// The machine of an OS thread without an executor: a single lane.
struct SoleLane;

// SAFETY: the lane is alone in its grid: it waits for no other, and is the only lane at a location.
unsafe impl Machine for SoleLane {
    fn coords(&self) -> Coords {
        Coords::SOLE
    }

    fn converged(&self, _: &'static Location<'static>) -> LaneMask {
        LaneMask::only(0)
    }

    fn exchange(
        &self,
        mask: LaneMask,
        _: Collective,
        _: u64,
        at: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>> {
        assert_eq!(mask, LaneMask::only(0), "{at}: a collective names lanes that do not exist on the host");
        None
    }

    fn sync_block(&self, _: &'static Location<'static>) {}
}
