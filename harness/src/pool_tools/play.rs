//! Plays a script on a pool: makes and times its calls, and records after each allocation the
//! memory that the pool holds.

mod session;
mod turns;

pub use session::Failed;
pub(super) use session::Played;

use super::script::{Action, Script};
use session::{Session, is_refusal};
use std::time::{Duration, Instant};
use turns::in_turns;
use warpheap::Result;
use warpheap::driver::Stream;
use warpheap::host_pools::DeviceAllocator;

/// The host threads that make the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Hosts {
    /// One thread makes all calls.
    ///
    /// It is the calling thread.
    One,
    /// As many threads as in the log, each makes its own calls.
    #[cfg_attr(feature = "cli", value(name = "logged"))]
    AsLogged,
}

/// Creates as many streams on the pool's device as the script has.
fn streams(script: &Script, pool: &dyn DeviceAllocator) -> Result<Vec<Stream>> {
    (0..script.streams).map(|_| pool.device().stream()).collect()
}

/// Makes all calls of a script, and then frees the remaining blocks.
///
/// # Errors
/// `NoThread` if the system cannot start a thread. Any error of a call, except for a failed
/// allocation or a rejected free.
pub(super) fn play(script: &Script, pool: &dyn DeviceAllocator, hosts: Hosts) -> Result<Played> {
    let streams = streams(script, pool)?;
    let mut session = Session::new(script, pool, &streams);
    match hosts {
        Hosts::One => script.steps.iter().try_for_each(|step| session.step(step))?,
        Hosts::AsLogged => session = in_turns(session)?,
    }
    session.finish()
}

/// Makes all calls of a script on the calling thread and returns the time; failed allocations are
/// skipped.
///
/// # Errors
/// Any error of a call, except for a failed allocation.
pub(super) fn time(script: &Script, pool: &dyn DeviceAllocator) -> Result<Duration> {
    let streams = streams(script, pool)?;
    let mut blocks = vec![None; script.layouts.len()];
    let start = Instant::now();
    for step in &script.steps {
        let (layout, stream) = (script.layouts[step.slot], &streams[step.stream]);
        match step.action {
            Action::Alloc => match pool.allocate(layout, stream) {
                Ok(ptr) => blocks[step.slot] = Some(ptr),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            },
            Action::Free => {
                let Some(ptr) = blocks[step.slot].take() else { continue };
                // SAFETY: allocated by an earlier step, taken out of its slot, and never passed to
                // a kernel.
                unsafe { pool.deallocate(ptr, layout, stream) }?;
            }
        }
    }
    let took = start.elapsed();
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok(took)
}
