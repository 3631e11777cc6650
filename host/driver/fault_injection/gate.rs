//! An event that a test triggers: it blocks a stream of the CPU until then.

use crate::driver::backend::EventBackend;
use crate::driver::{Device, Event};
use crate::error::Result;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// A closed gate, and the event that happens when it opens. The gate must be opened, because each
/// stream that waits for it blocks a thread.
pub(crate) fn gate(device: &Device) -> (Event, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    (Event::new(device.clone(), gate.clone()), gate)
}

impl Gate {
    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub fn is_open(&self) -> bool {
        *self.is_open.lock().unwrap()
    }
}

impl EventBackend for Gate {
    fn is_done(&self) -> Result<bool> {
        Ok(self.is_open())
    }

    fn synchronize(&self) -> Result<()> {
        let closed = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(closed, |is_open| !*is_open).unwrap());
        Ok(())
    }

    fn elapsed(&self, _: &dyn EventBackend) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}
