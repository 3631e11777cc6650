//! Host threads that make the calls of a measurement or a replay.

use std::thread::{Builder, Scope, ScopedJoinHandle};
use warpheap::error::InvalidConfig;
use warpheap::{Error, Result};

/// The most threads. On the CPU each has a stream with a thread of its own.
const MAX_THREADS: usize = 1024;

/// Fails for more threads than there can be.
pub(crate) fn check(count: usize) -> Result<()> {
    if count <= MAX_THREADS {
        return Ok(());
    }
    let (given, why) = (count.to_string(), format!("it must be at most {MAX_THREADS}"));
    Err(InvalidConfig::Pool { setting: "threads", given, why }.into())
}

/// Starts a thread.
pub(crate) fn start<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> Result<ScopedJoinHandle<'s, T>> {
    #[cfg(test)]
    let started = planted::fails().and_then(|()| Builder::new().spawn_scoped(scope, work));
    #[cfg(not(test))]
    let started = Builder::new().spawn_scoped(scope, work);
    started.map_err(|error| Error::NoThread {
        what: "calls of a pool",
        why: error.to_string(),
        advice: "use fewer host threads, or raise the system's limits on threads and mappings",
    })
}

/// Threads that the system does not start.
#[cfg(test)]
pub(crate) mod planted {
    use std::cell::Cell;
    use std::io;

    thread_local!(static LEFT: Cell<usize> = const { Cell::new(usize::MAX) });

    /// The calling thread can start `count` threads more.
    pub fn allow(count: usize) {
        LEFT.set(count);
    }

    pub(super) fn fails() -> io::Result<()> {
        let left = LEFT.get().checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
        LEFT.set(left);
        Ok(())
    }
}
