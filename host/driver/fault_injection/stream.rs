//! Streams and events with failing calls.

use super::calls::Call;
use super::clocks::Clock;
use super::faults::Faults;
use crate::driver::backend::{EventBackend, Launch, StreamBackend, Transfer, Transfers};
use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::simt::Stats;
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct FaultyStream {
    inner: Arc<dyn StreamBackend>,
    faults: Arc<Faults>,
    /// Number of the stream's clock.
    number: usize,
}

/// A new stream of any CPU device, which does not fail yet, and its fault controls.
pub(crate) fn faulty_stream(device: &Device) -> (Stream, Arc<Faults>) {
    let faults = Faults::new(false);
    let stream = FaultyStream::over(device.driver().stream().unwrap(), faults.clone());
    (Stream::new(device.clone(), Arc::new(stream)), faults)
}

impl FaultyStream {
    pub fn over(inner: Arc<dyn StreamBackend>, faults: Arc<Faults>) -> FaultyStream {
        let number = {
            let mut state = faults.state();
            state.streams += 1;
            state.clocks.add()
        };
        FaultyStream { inner, faults, number }
    }
}

impl Drop for FaultyStream {
    fn drop(&mut self) {
        self.faults.state().streams -= 1;
    }
}

impl Transfers for FaultyStream {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        self.faults.call(match transfer {
            Transfer::Write { .. } => Call::StreamWrite,
            Transfer::Read { .. } => Call::StreamRead,
            Transfer::Copy { .. } => Call::StreamCopy,
            Transfer::Fill { .. } => Call::StreamFill,
        })?;
        // SAFETY: the caller upholds the contract of `transfer`, which is passed on.
        unsafe { self.inner.transfer(transfer) }
    }
}

impl StreamBackend for FaultyStream {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.faults.call(Call::Launch)?;
        // SAFETY: the caller upholds the contract of `launch`, which is passed on.
        unsafe { self.inner.launch(launch) }
    }

    fn record(&self) -> Result<Arc<dyn EventBackend>> {
        self.faults.call(Call::Record)?;
        let inner = self.inner.record()?;
        let (clock, made) = {
            let mut state = self.faults.state();
            (state.clocks.mark(self.number), state.clocks.waits)
        };
        Ok(Arc::new(FaultyEvent { inner, faults: self.faults.clone(), clock, made }))
    }

    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()> {
        self.faults.call(Call::Wait)?;
        // The stream's own thread queries the inner event, which is not counted.
        let Some(faulty) = own(&*event) else { return self.inner.wait(event) };
        self.inner.wait(faulty.inner.clone())?;
        self.faults.state().clocks.wait(self.number, &faulty.clock);
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.faults.call(Call::StreamSynchronize)?;
        // Count first: CPU pools query events during the call below.
        self.faults.state().clocks.waits += 1;
        self.inner.synchronize()?;
        self.faults.state().clocks.host_waited(self.number);
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        self.faults.call(Call::StreamQuery)?;
        self.inner.is_done()
    }

    fn is_idle(&self) -> bool {
        let is_idle = self.faults.call(Call::StreamQuery).is_ok() && !self.faults.keeps_pending;
        let is_idle = is_idle && self.inner.is_idle();
        if is_idle {
            self.faults.state().clocks.host_waited(self.number);
        }
        is_idle
    }

    /// The stream's number, by which `number_of` finds its clock. There is no driver that would use
    /// it as a handle.
    fn raw(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.number)
    }

    fn cpu_stats(&self) -> Option<Stats> {
        self.inner.cpu_stats()
    }
}

pub(super) struct FaultyEvent {
    inner: Arc<dyn EventBackend>,
    faults: Arc<Faults>,
    clock: Clock,
    /// Number of host waits when the event was created.
    made: usize,
}

fn own(event: &dyn EventBackend) -> Option<&FaultyEvent> {
    let any: &dyn Any = event;
    any.downcast_ref()
}

impl FaultyEvent {
    /// Work on these streams takes only moments, so waiting for it is cheap.
    fn happened(&self) -> Result<()> {
        self.inner.synchronize()?;
        self.faults.state().clocks.host_saw(&self.clock);
        Ok(())
    }
}

impl EventBackend for FaultyEvent {
    fn is_done(&self) -> Result<bool> {
        self.faults.call(Call::EventQuery)?;
        let is_done = match self.faults.keeps_pending {
            true => self.faults.state().clocks.waits > self.made,
            false => self.inner.is_done()?,
        };
        if is_done {
            self.happened()?;
        }
        Ok(is_done)
    }

    fn synchronize(&self) -> Result<()> {
        self.faults.call(Call::EventSynchronize)?;
        self.faults.state().clocks.waits += 1;
        self.happened()
    }

    fn elapsed(&self, earlier: &dyn EventBackend) -> Result<Duration> {
        self.inner.elapsed(own(earlier).map_or(earlier, |faulty| &*faulty.inner))
    }
}
