//! Forked children.
//!
//! A fork copies the calling thread only. The threads of CPU streams do not exist in the child,
//! locks that other threads held stay locked, and CUDA does not work there. So nothing of this
//! crate is usable in a child whose parent had made a device.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The process has made no device, so a child can.
const UNUSED: u8 = 0;
/// The process has made a device.
const USED: u8 = 1;
/// The process is a child of one that had made a device, or a child of such a child.
const FORKED: u8 = 2;

// ordering: relaxed; the only thread of a new child stores `FORKED`.
static STATE: AtomicU8 = AtomicU8::new(UNUSED);

/// Fails in a process that was forked after its parent had made a device.
///
/// No call of this crate works there, and a call may wait for ever: for a thread that does not
/// exist, or for a lock that is never released. Drops of pools, memory and streams may, too; forget
/// them instead. The check costs one load.
///
/// # Errors
/// [`Error::Forked`].
pub fn check_process() -> Result<()> {
    if STATE.load(Relaxed) == FORKED { Err(Error::Forked) } else { Ok(()) }
}

/// The process is about to make a device. From now on, its children are noticed.
pub(super) fn note_device() {
    if STATE.load(Relaxed) != UNUSED {
        return;
    }
    // Before the change of the state: threads that race register twice, which changes nothing.
    // Miri has no `pthread_atfork`.
    #[cfg(all(unix, not(miri)))]
    // SAFETY: the function stores to an atomic, which is allowed in a child.
    if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
        tracing::warn!("out of memory; a forked child that uses this process's devices may hang");
    }
    let _ = STATE.compare_exchange(UNUSED, USED, Relaxed, Relaxed);
}

#[cfg(all(unix, not(miri)))]
extern "C" fn in_child() {
    let _ = STATE.compare_exchange(USED, FORKED, Relaxed, Relaxed);
}

#[cfg(all(test, unix))]
mod tests {
    use crate::driver::Device;
    use crate::error::{Error, Result};
    use std::process::Command;

    const CHILD: &str = "driver::fork::tests::child_forks";

    /// Forks in a process of its own: the device of another test must not be seen in the child.
    #[test]
    fn nothing_waits_in_a_forked_child() {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let output = program.args(["--ignored", "--exact", "--nocapture", CHILD]).output().unwrap();
        let [out, printed] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success() && out.contains("1 passed"), "{out}{printed}");
    }

    /// Calls `body` in a child. Returns its exit status: 0 if `body` returns `true` in time.
    fn in_child(body: impl FnOnce() -> bool) -> i32 {
        // SAFETY: the child calls `body` and ends. The allocator of the system works there.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no preconditions.
            unsafe { libc::alarm(20) };
            let status = if body() { 0 } else { 1 };
            // SAFETY: no preconditions.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn child_forks() {
        let is_forked = |outcome: Result<()>| matches!(outcome, Err(Error::Forked));
        let makes_a_device = || Device::cpu().stream().and_then(|stream| stream.synchronize()).is_ok();
        assert_eq!(in_child(makes_a_device), 0, "no device was made before");
        let device = Device::cpu();
        let (stream, buffer) = (device.stream().unwrap(), device.from_slice(&[1_u32, 2]).unwrap());
        let event = stream.record().unwrap();
        stream.synchronize().unwrap();
        let fails = || {
            let outcomes = [
                stream.synchronize(),
                stream.is_done().map(drop),
                stream.record().map(drop),
                stream.wait(&event),
                event.synchronize(),
                event.is_done().map(drop),
                event.elapsed(&event).map(drop),
                device.synchronize(),
                buffer.copy_to_vec().map(drop),
                Device::cuda(0).map(drop),
                Device::cuda_count().map(drop),
                super::check_process(),
            ];
            let wrong = outcomes.into_iter().position(|outcome| !is_forked(outcome));
            wrong.inspect(|place| eprintln!("call {place} in the child")).is_none()
        };
        assert_eq!(in_child(fails), 0);
        assert_eq!(in_child(|| in_child(fails) == 0), 0, "a child of a child");
        stream.synchronize().unwrap();
        let drops = move || {
            drop((buffer, stream, event));
            true
        };
        assert_eq!(in_child(drops), 0);
    }
}
