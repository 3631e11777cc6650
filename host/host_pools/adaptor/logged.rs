//! A log of every call, as CSV.
//!
//! ```text
//! thread,time,action,pointer,size,stream,align,tag
//! 1,10210,allocate,0x7f5bd4000000,4096,2,256,"layer 3"
//! 2,21005,allocate failure,0x0,8192,3,256,
//! 1,40817,free,0x7f5bd4000000,4096,2,256,
//! ```
//!
//! | column | content |
//! |---|---|
//! | `thread` | number of the thread within the process, from 1 |
//! | `time` | nanoseconds since the log began, when an allocation returned or a free was called |
//! | `action` | `allocate`, `allocate failure`, `free` or `free failure` |
//! | `pointer` | address, hexadecimal; `0x0` for a failed allocation |
//! | `size` | requested bytes |
//! | `stream` | number of the stream, as [`StreamId`](crate::StreamId) prints it |
//! | `align` | requested alignment |
//! | `tag` | the [`tag`](crate::host_pools::tag()) of the thread that allocates, in quotes; empty without a tag and for frees |
//!
//! The first six columns are those of RMM's logs, which contain the time of day instead;
//! [`read_log`] reads both. A row is written when its call has returned, so rows of several threads
//! may not be sorted by time. In the order of `time`, an address is never allocated twice without a
//! free in between: the two times are chosen for this, and [`read_log`] returns the rows in this
//! order.

#[cfg(feature = "csv")]
mod read;

#[cfg(feature = "csv")]
pub use read::read_log;
// For replays and exports, which report the line of an invalid row.
#[cfg(feature = "csv")]
#[doc(hidden)]
pub use read::{LogReader, LogRow, LogTicks, read_rows};

use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::address_of;
use crate::host_pools::tag::current_tag;
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use std::fmt;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use warpheap_device::kernel::DevicePtr;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// An allocation.
    Allocate,
    /// A failed allocation.
    AllocateFailure,
    /// A free.
    Free,
    /// A failed free.
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

/// The first row: the column names.
const HEADER: &str = "thread,time,action,pointer,size,stream,align,tag";

/// A row of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Number of the thread within the process.
    pub thread: u64,
    /// Nanoseconds since the start of the log.
    pub time: u64,
    /// Outcome of the call.
    pub action: LogAction,
    /// Address; 0 for a failed allocation.
    pub pointer: u64,
    /// Bytes.
    pub size: u64,
    /// Number of the stream within the process.
    pub stream: u64,
    /// Alignment.
    pub align: u64,
    /// The tag of an allocation.
    pub tag: Option<Arc<str>>,
}

/// A CSV row. Only the tag needs quotes.
impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogRecord { thread, time, action, pointer, size, stream, align, tag } = self;
        write!(f, "{thread},{time},{action},{pointer:#x},{size},{stream},{align},")?;
        match tag {
            Some(tag) => write!(f, "\"{}\"", tag.replace('"', "\"\"")),
            None => Ok(()),
        }
    }
}

/// Writes a CSV row for every call.
///
/// Write failures do not affect the calls. [`flush`](Self::flush) and
/// [`into_parts`](Self::into_parts) report the first failure. Dropping this writes the buffered
/// rows.
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
    /// Whether the header is still to be written.
    is_empty: bool,
    failure: Option<Error>,
}

impl<A: DeviceAllocator, W: Write + Send> Logged<A, W> {
    /// Logs the calls of `upstream` to `to`, which needs no buffering.
    pub fn new(upstream: A, to: W) -> Logged<A, W> {
        let log = Log { writer: BufWriter::new(to), is_empty: true, failure: None };
        Logged { upstream, log: Mutex::new(log), start: Instant::now() }
    }

    /// The wrapped allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Writes the buffered rows.
    ///
    /// # Errors
    /// [`Error::AllocLog`] if this or an earlier row could not be written.
    pub fn flush(&self) -> Result<()> {
        let mut log = lock(&self.log);
        let done = log.writer.flush().map_err(not_written);
        log.failure.clone().map_or(done, Err)
    }

    /// Ends the log, and returns the wrapped allocator and the writer.
    ///
    /// # Errors
    /// The errors of [`flush`](Self::flush).
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
        let tag = match action {
            LogAction::Allocate | LogAction::AllocateFailure => current_tag(),
            LogAction::Free | LogAction::FreeFailure => None,
        };
        let record = LogRecord {
            thread: this_thread(),
            time,
            action,
            pointer,
            size: layout.size() as u64,
            stream: stream.id().number(),
            align: layout.align() as u64,
            tag,
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

// SAFETY: A1 to A3 hold for the upstream.
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
        // After the call: by then the previous owner of the address has called its free.
        self.write(self.nanos(), action, pointer, layout, stream);
        done
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // Before the call: another thread may get the address as soon as the upstream has it.
        let time = self.nanos();
        // SAFETY: the caller's promises P1 and P2.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        let action = if done.is_ok() { LogAction::Free } else { LogAction::FreeFailure };
        self.write(time, action, address_of(ptr), layout, stream);
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    fn report(&self) -> MemoryReport {
        self.upstream.report()
    }
}

fn not_written(why: impl ToString) -> Error {
    Error::AllocLog {
        what: "written",
        why: why.to_string(),
        advice: "the remaining rows are missing, but the calls were made; check the free space of the target",
    }
}

/// A number for the calling thread.
fn this_thread() -> u64 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        // ordering: relaxed; only the uniqueness of the number matters.
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number as u64)
}
