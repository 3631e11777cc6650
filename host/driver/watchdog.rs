//! A time limit for work that cannot be cancelled.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use warpheap_sim::threads::counted;

/// Ends the process with a message, unless dropped within the limit.
///
/// A hanging kernel cannot be cancelled, neither on a GPU nor on the CPU, and waiting for it hangs
/// too.
#[derive(Debug)]
#[must_use = "dropping the watchdog disarms it"]
pub struct Watchdog {
    _armed: Sender<()>,
}

impl Watchdog {
    /// After `limit`, prints that `what` hangs, with `advice` unless it is empty, and ends the
    /// process with `exit_code`.
    pub fn start(
        limit: Duration,
        what: impl Into<String>,
        advice: impl Into<String>,
        exit_code: i32,
    ) -> Watchdog {
        let (armed, disarmed) = channel();
        let (what, advice) = (what.into(), advice.into());
        // Without a thread there is no watchdog; the watched work is not affected.
        let work = counted(move || watch(&disarmed, limit, &what, &advice, exit_code));
        let started = work.and_then(|work| thread::Builder::new().name("watchdog".into()).spawn(work));
        if let Err(error) = started {
            tracing::warn!(%error, "the watchdog could not be started: a hang will not be detected");
        }
        Watchdog { _armed: armed }
    }

    /// Disarms the watchdog: the work ended in time. Equivalent to dropping it.
    pub fn disarm(self) {}
}

/// Waits for the sender to be dropped.
fn watch(disarmed: &Receiver<()>, limit: Duration, what: &str, advice: &str, exit_code: i32) {
    if disarmed.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let message = format!(
        "error: {what} did not end within {limit:?}. A kernel that hangs cannot be cancelled, so this process \
         ends now, with status {exit_code}.\n{advice}"
    );
    // If stderr cannot be written, the exit status still tells.
    let _ = writeln!(std::io::stderr(), "{}", message.trim_end());
    exit_now(exit_code)
}

/// Ends the process without its exit handlers: the driver's handler would wait for the kernel.
fn exit_now(exit_code: i32) -> ! {
    unsafe extern "C" {
        fn _exit(code: i32) -> !;
    }
    // SAFETY: `_exit` does not return, and the process leaves nothing behind that needs cleanup.
    unsafe { _exit(exit_code) }
}
