//! Fixed costs of a heap: set-up time and metadata.

use crate::bench::context::{Bench, GIB, Plan};
use crate::bench::results::{Bar, Figure};
use crate::summary::Timing;
use crate::{Error, Result};
use std::time::Instant;

/// Maximum set-up time in microseconds.
const INIT_BAR: f64 = 1000.0;
/// Maximum size of the metadata, in percent of the heap.
const METADATA_BAR: f64 = 1.0;

pub(super) fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for gib in [8, 100] {
        let name = format!("heap init, {gib} GiB");
        all.push(Plan::new(name, &[], move |b, name| b.heap_init(name, gib * GIB)));
    }
    for gib in [1, 8, 100] {
        let name = format!("heap metadata, {gib} GiB");
        all.push(Plan::new(name, &[], move |b, name| b.heap_metadata(name, gib * GIB)));
    }
    all
}

impl Bench {
    /// Host time of a call of `reset` on an idle device, which returns when the device has written
    /// all metadata. In addition, `build` only allocates memory from the driver.
    fn heap_init(&self, name: &str, bytes: u64) -> Result<Figure> {
        let mut heap = self.heap(bytes)?;
        let mut rounds = Vec::new();
        for _ in 0..self.timer.launches() {
            self.timer.device.synchronize()?;
            let started = Instant::now();
            heap.reset()?;
            rounds.push(started.elapsed().as_secs_f64() * 1e6);
        }
        let time = Timing::of(rounds.split_off(self.timer.uncounted()));
        let checked = match heap.check()?.first() {
            None => "all metadata as of a new heap".to_owned(),
            Some(violation) => return Err(Error::wrong(name, format!("{violation:?}"))),
        };
        let figure = Figure::plain(name, 0, "the host's clock, without the driver's allocation");
        Ok(figure.timed(time).checked(checked).measured_by(time.median_us, "us", Bar::AtMost, INIT_BAR))
    }

    fn heap_metadata(&self, name: &str, bytes: u64) -> Result<Figure> {
        let heap = self.heap(bytes)?;
        let (metadata, capacity) = (heap.metadata_bytes(), heap.capacity());
        let share = metadata as f64 / capacity as f64 * 100.0;
        let checked = format!("{metadata} B beside {capacity} B");
        let figure = Figure::plain(name, 0, "the memory for blocks").checked(checked);
        Ok(figure.measured_by(share, "%", Bar::AtMost, METADATA_BAR))
    }
}
