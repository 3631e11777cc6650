//! Delays of threads at named points of the allocators: see `warpheap_device::sync::delay`.

use super::backend::{Range, Transfer};
use super::module::Module;
use crate::error::{InvalidModule, Result};
use crate::lock::lock;
use std::ptr::from_mut;
use std::sync::{Mutex, MutexGuard};
use warpheap_device::sync::delay::{SYMBOL, Settings, WORDS, counts, of_program, words};

/// The shortest and the longest delay: 20 to 200 µs. Long enough for other warps to allocate and
/// free several times, short enough for thousands of delays.
const NANOS: (u32, u32) = (20_000, 200_000);
/// The same in a replay, whose clock counts the steps of all lanes: a block of 256 threads makes
/// some 10 to 80 steps per lane meanwhile.
const STEPS: (u32, u32) = (2_000, 20_000);

/// All kernels of the CPU share the words of the program, so one session runs at a time.
static SESSION: Mutex<()> = Mutex::new(());

/// Delays that are switched on in the kernels of a module, until this is dropped. On the CPU, in
/// all kernels of the program.
#[derive(Debug)]
#[must_use = "the delays are switched off when this is dropped"]
pub struct Delays {
    module: Module,
    /// The variable; `None` on the CPU.
    place: Option<Range>,
    points: Vec<&'static str>,
    _session: MutexGuard<'static, ()>,
}

impl Module {
    /// Delays one thread in `one_in` whenever threads pass the points with these names, for 20 to
    /// 200 µs; in a replay, for 2,000 to 20,000 steps. `seed` determines which threads and for how
    /// long, together with the clock. Points that the module's kernels do not pass have no effect.
    /// Waits for the device, and until other delays of the program are switched off.
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule) if the kernels were built without the feature
    /// `delays` of `warpheap-device`; or an earlier failure of the device.
    ///
    /// # Panics
    /// With more than 255 points.
    pub fn delay(&self, seed: u64, one_in: u32, points: &[&'static str]) -> Result<Delays> {
        let _session = lock(&SESSION);
        let missing = InvalidModule::NoDelays { symbol: SYMBOL };
        let place = self.code().variable(SYMBOL, size_of::<[u64; WORDS]>() as u64, missing)?;
        let nanos = if self.device().info()?.replays { STEPS } else { NANOS };
        let words = words(&Settings { seed, one_in, nanos, points }).expect("at most 255 points");
        let delays = Delays { module: self.clone(), place, points: points.to_vec(), _session };
        delays.write(words)?;
        Ok(delays)
    }
}

impl Delays {
    /// Waits for the device, then returns the number of delays at each point since they were
    /// switched on.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn counts(&self) -> Result<Vec<(&'static str, u64)>> {
        let device = self.module.device();
        device.synchronize()?;
        let mut words = [0; WORDS];
        match self.place {
            None => words = of_program().read(),
            Some(Range { address: from, bytes }) => {
                let read = Transfer::Read { to: from_mut(&mut words).cast(), from, bytes: bytes as usize };
                // SAFETY: the range is the variable, whose size was checked; `words` has as many
                // bytes.
                unsafe { device.driver().transfer(read) }?;
            }
        }
        Ok(self.points.iter().copied().zip(counts(&words, &self.points)).collect())
    }

    /// Writes the words while no kernel of the module runs.
    fn write(&self, words: [u64; WORDS]) -> Result<()> {
        let device = self.module.device();
        // Before blocking launches: a running kernel may wait for one that is yet to be launched.
        device.synchronize()?;
        let _blocked = self.module.code().block_launches();
        device.synchronize()?;
        let Some(Range { address: to, bytes }) = self.place else {
            of_program().write(&words);
            return Ok(());
        };
        let write = Transfer::Write { to, from: words.as_ptr().cast(), bytes: bytes as usize };
        // SAFETY: the range is the variable, whose size was checked; no kernel of the module runs.
        unsafe { device.driver().transfer(write) }
    }
}

impl Drop for Delays {
    fn drop(&mut self) {
        if let Err(error) = self.write([0; WORDS]) {
            tracing::warn!(%error, "the delays of a module could not be switched off");
        }
    }
}
