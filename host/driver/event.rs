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
    // Before the device: an event goes before its context does.
    backend: Arc<dyn EventBackend>,
    device: Device,
}

impl Event {
    pub(crate) fn new(device: Device, backend: Arc<dyn EventBackend>) -> Event {
        Event { backend, device }
    }

    /// The device whose stream this is a point of.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the stream has come there.
    ///
    /// # Errors
    /// What failed before it on a GPU.
    pub fn is_done(&self) -> Result<bool> {
        self.backend.is_done()
    }

    /// Waits until the stream comes there.
    ///
    /// # Errors
    /// What failed before it on a GPU.
    pub fn synchronize(&self) -> Result<()> {
        self.backend.synchronize()
    }

    /// The time from `earlier` to this point, waiting for both. A GPU resolves about half a microsecond.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::Error::InvalidRequest) if `earlier` is the later one,
    /// [`WrongDevice`](crate::Error::WrongDevice) if it is of another device.
    pub fn elapsed(&self, earlier: &Event) -> Result<Duration> {
        self.device.same_as(&earlier.device, "the earlier event")?;
        earlier.synchronize()?;
        self.synchronize()?;
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
