//! Panics of threads: what they end, and the panic hook that finds their place.
//!
//! The hook of the program is called for all panics but the first of a lane: that one is an error
//! that the run returns. A second one, in a destructor while the first one unwinds the lane, can
//! abort the program. Without our hook, the error has no place.

use super::error::Panic;
use std::cell::RefCell;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;
use warpheap_machine::machine;

/// What a panic of a thread ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// The thread. The other threads of the grid continue.
    #[default]
    EndThread,
    /// The grid. On a GPU this makes the context unusable.
    EndGrid,
}

thread_local! {
    /// The place of the last panic of the running lane, or of the last one on this OS thread. No
    /// other lane runs while a panic unwinds one. A kernel that catches its own panic leaves the
    /// place behind; then one more panic on this OS thread is passed to the hook of the program.
    static PLACE: RefCell<Option<(String, u32, u32)>> = const { RefCell::new(None) };
}

/// Installs the hook, once for the program. The calling OS thread does not panic.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            if !machine::runs_a_lane() || !is_first(info) {
                hook(info);
            }
        }));
    });
}

/// A lane starts on this OS thread.
pub(super) fn begin() {
    PLACE.set(None);
}

/// Notes the place of a panic of the running lane. Returns whether no other panic unwinds the lane.
fn is_first(info: &PanicHookInfo<'_>) -> bool {
    let place = info.location().map(|at| (at.file().to_owned(), at.line(), at.column()));
    PLACE.replace(place).is_none()
}

/// The panic of a lane that has just unwound, with this message. Its thread is not known here.
pub(super) fn unwound(message: String) -> Box<Panic> {
    let (file, line, column) = PLACE.take().unwrap_or_default();
    Box::new(Panic { file, line, column, message, ..Panic::default() })
}

#[cfg(test)]
mod tests {
    use crate::{Executor, Grid, Mode};
    use std::process::Command;

    warpheap_device::kernel! {
        /// Panics, and again in a destructor.
        ///
        /// # Safety
        /// The kernel accesses no memory.
        pub unsafe fn panics_twice() {
            struct Second;
            impl Drop for Second {
                fn drop(&mut self) {
                    panic!("the second panic");
                }
            }
            let _second = Second;
            panic!("the first panic");
        }
    }

    #[test]
    fn a_panic_that_aborts_the_program_is_printed() {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--ignored", "--exact", "--nocapture"]).arg(CHILD);
        let output = program.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains("the second panic"), "{printed}");
    }

    const CHILD: &str = "panic::tests::child_panics_twice";

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn child_panics_twice() {
        let grid = Grid { blocks: [1; 3], threads: [1; 3] };
        // SAFETY: the kernel accesses nothing.
        let _ = unsafe { Executor::new(Mode::Replay { seed: 0 }).run::<panics_twice>(grid, ()) };
    }
}
