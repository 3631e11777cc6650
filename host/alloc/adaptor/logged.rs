//! A log of every call, as CSV.
//!
//! ```text
//! thread,time,action,pointer,size,stream,align
//! 1,10210,allocate,0x7f5bd4000000,4096,2,256
//! 2,21005,allocate failure,0x0,8192,3,256
//! 1,40817,free,0x7f5bd4000000,4096,2,256
//! ```
//!
//! | column | what |
//! |---|---|
//! | `thread` | a number for each thread of the process, from 1 |
//! | `time` | nanoseconds since the log began: when an allocation had returned, and when a free was called |
//! | `action` | `allocate`, `allocate failure`, `free` or `free failure` |
//! | `pointer` | the address, hexadecimal; `0x0` of an allocation that failed |
//! | `size` | bytes, as asked for |
//! | `stream` | the number of the stream, as [`StreamId`](crate::StreamId) prints it |
//! | `align` | the alignment, as asked for |
//!
//! The first six columns are those of RMM's logs, which give the time of day instead, and which [`read_log`] reads as well. A row is
//! written when its call has returned, so rows of several threads may not be in the order of their times. By time, an address is
//! never allocated twice without a free between: that is what the two moments are chosen for, and the order in which
//! [`read_log`] returns.

#[cfg(feature = "csv")]
mod read;

#[cfg(feature = "csv")]
pub use read::read_log;
// For replays, which name the line of what is wrong.
#[cfg(feature = "csv")]
#[doc(hidden)]
pub use read::{LogRow, read_rows};

use crate::alloc::{DeviceAllocator, Usage, address_of, lock};
use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use std::alloc::Layout;
use std::fmt;
use std::io::{BufWriter, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use warpheap_device::kernel::DevicePtr;

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// It allocated.
    Allocate,
    /// It was to allocate, and failed.
    AllocateFailure,
    /// It gave a block back.
    Free,
    /// It was to give a block back, and failed.
    FreeFailure,
}

impl fmt::Display for LogAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogAction::Allocate => "allocate",
            LogAction::AllocateFailure => "allocate failure",
            LogAction::Free => "free",
            LogAction::FreeFailure => "free failure",
        })
    }
}

/// The first row: the names of the columns.
const HEADER: &str = "thread,time,action,pointer,size,stream,align";

/// A row of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Which thread of the process.
    pub thread: u64,
    /// Nanoseconds since the log began.
    pub time: u64,
    /// What the call did.
    pub action: LogAction,
    /// The address; 0 of an allocation that failed.
    pub pointer: u64,
    /// Bytes.
    pub size: u64,
    /// Which stream of the process.
    pub stream: u64,
    /// The alignment.
    pub align: u64,
}

/// A row of CSV: numbers and words, which need no quotes.
impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogRecord { thread, time, action, pointer, size, stream, align } = self;
        write!(f, "{thread},{time},{action},{pointer:#x},{size},{stream},{align}")
    }
}

/// Writes a row of CSV for every call.
///
/// What cannot be written does not disturb the calls: the first failure is told by [`flush`](Self::flush), and by
/// [`into_parts`](Self::into_parts). Dropping it writes what is buffered.
pub struct Logged<A, W: Write> {
    upstream: A,
    log: Mutex<Log<W>>,
    start: Instant,
}

impl<A: fmt::Debug, W: Write> fmt::Debug for Logged<A, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logged").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

struct Log<W: Write> {
    writer: BufWriter<W>,
    /// Whether the names of the columns are still to be written.
    is_empty: bool,
    failure: Option<Error>,
}

impl<A: DeviceAllocator, W: Write + Send> Logged<A, W> {
    /// Logs the calls of `upstream` to `to`, which needs no buffer of its own.
    pub fn new(upstream: A, to: W) -> Logged<A, W> {
        let log = Log { writer: BufWriter::new(to), is_empty: true, failure: None };
        Logged { upstream, log: Mutex::new(log), start: Instant::now() }
    }

    /// What it wraps.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// [`Error::AllocLog`] if this or a row before could not be written.
    pub fn flush(&self) -> Result<()> {
        let mut log = lock(&self.log);
        let done = log.writer.flush().map_err(not_written);
        log.failure.clone().map_or(done, Err)
    }

    /// Ends the log, and returns what it wrapped and what it was written to.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush).
    pub fn into_parts(self) -> Result<(A, W)> {
        let Log { writer, failure, .. } =
            self.log.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let to = writer.into_inner().map_err(|error| not_written(error.error()))?;
        failure.map_or(Ok((self.upstream, to)), Err)
    }

    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
    }

    fn write(&self, time: u64, action: LogAction, pointer: u64, layout: Layout, stream: &Stream) {
        let record = LogRecord {
            thread: this_thread(),
            time,
            action,
            pointer,
            size: layout.size() as u64,
            stream: stream.id().number(),
            align: layout.align() as u64,
        };
        let mut log = lock(&self.log);
        let header =
            if std::mem::take(&mut log.is_empty) { writeln!(log.writer, "{HEADER}") } else { Ok(()) };
        let done = header.and_then(|()| writeln!(log.writer, "{record}"));
        if let (Err(error), None) = (done, &log.failure) {
            log.failure = Some(not_written(error));
        }
    }
}

// SAFETY: the upstream's promise.
unsafe impl<A: DeviceAllocator, W: Write + Send> DeviceAllocator for Logged<A, W> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let done = self.upstream.allocate(layout, stream);
        let (action, pointer) = match &done {
            Ok(ptr) => (LogAction::Allocate, address_of(*ptr)),
            Err(_) => (LogAction::AllocateFailure, 0),
        };
        // After: by then whoever had the address before has called its free.
        self.write(self.nanos(), action, pointer, layout, stream);
        done
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // Before: another thread may get the address as soon as the upstream has it.
        let time = self.nanos();
        // SAFETY: the caller's promise.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        let action = if done.is_ok() { LogAction::Free } else { LogAction::FreeFailure };
        self.write(time, action, address_of(ptr), layout, stream);
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }
}

fn not_written(why: impl ToString) -> Error {
    Error::AllocLog {
        what: "written",
        why: why.to_string(),
        advice: "rows from there on are missing, the calls themselves were made; look for room where it is written to",
    }
}

/// A number for the calling thread.
fn this_thread() -> u64 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        // Relaxed: all that counts is that no two are alike.
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number as u64)
}
