//! Events: points in a stream.

use super::backend::EventBackend;
use super::device::Device;
use crate::error::Result;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A point in a stream, made by [`Stream::record`](super::Stream::record).
#[derive(Clone)]
#[must_use = "an event that nothing waits for orders nothing"]
pub struct Event {
    // Before the device: an event must be dropped before its context.
    backend: Arc<dyn EventBackend>,
    device: Device,
}

impl Event {
    pub(crate) fn new(device: Device, backend: Arc<dyn EventBackend>) -> Event {
        Event { backend, device }
    }

    /// The device of the event's stream.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the stream has reached this point.
    ///
    /// # Errors
    /// On a GPU, a failure of earlier work. If it has, also panics of threads, as for
    /// [`Stream::synchronize`](super::Stream::synchronize).
    pub fn is_done(&self) -> Result<bool> {
        let done = self.backend.is_done()?;
        if done { self.device.driver().report_panics().map(|()| true) } else { Ok(false) }
    }

    /// Waits until the stream has reached this point.
    ///
    /// # Errors
    /// On a GPU, a failure of earlier work. Also panics of threads, as for
    /// [`Stream::synchronize`](super::Stream::synchronize).
    pub fn synchronize(&self) -> Result<()> {
        self.settle()?;
        self.device.driver().report_panics()
    }

    /// Waits without reporting panics: the next wait of the program reports them.
    pub(crate) fn settle(&self) -> Result<()> {
        self.backend.synchronize()
    }

    /// The time from `earlier` to this event. Waits for both. The resolution on a GPU is about half
    /// a microsecond.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::Error::InvalidRequest) if `earlier` is the later event,
    /// [`WrongDevice`](crate::Error::WrongDevice) if it belongs to another device.
    pub fn elapsed(&self, earlier: &Event) -> Result<Duration> {
        self.device.same_as(&earlier.device, "the earlier event")?;
        earlier.settle()?;
        self.settle()?;
        self.backend.elapsed(&*earlier.backend)
    }

    pub(crate) fn backend(&self) -> &Arc<dyn EventBackend> {
        &self.backend
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({})", self.device)
    }
}
