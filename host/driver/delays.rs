//! Delays of threads at named points of the allocators: see `warpheap_device::sync::delay`.

use super::backend::{Range, Transfer};
use super::module::Module;
use crate::error::{InvalidConfig, InvalidModule, Result};
use std::ops::Range as Between;
use std::ptr::from_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use warpheap_device::sync::delay::{SYMBOL, Settings, WORDS, counts, of_program, words};

/// The shortest and the longest delay: 20 to 200 µs. Long enough for other warps to allocate and
/// free several times, short enough for thousands of delays.
const NANOS: Between<u32> = 20_000..200_001;
/// The shortest and the longest delay of a replay. Its clock counts the steps of all lanes: a block
/// of 256 threads makes some 10 to 80 steps per lane meanwhile.
const STEPS: Between<u32> = 2_000..20_001;

/// Whether delays are switched on. All kernels of the CPU share the words of the program.
static SWITCHED_ON: AtomicBool = AtomicBool::new(false);

/// The right to switch delays on, until this is dropped.
#[derive(Debug)]
struct Session(());

impl Session {
    fn begin() -> Result<Session> {
        // ordering: acquire; pairs with the release of `drop`: the last session's words were
        // cleared.
        if SWITCHED_ON.swap(true, Ordering::Acquire) {
            let why = "delays are already switched on in this program; drop them first".into();
            return Err(InvalidConfig::Delays { why }.into());
        }
        Ok(Session(()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // ordering: release; pairs with the acquire of `begin`.
        SWITCHED_ON.store(false, Ordering::Release);
    }
}

/// Delays that are switched on in the kernels of a module, until this is dropped. On the CPU, in
/// all kernels of the program.
#[derive(Debug)]
#[must_use = "the delays are switched off when this is dropped"]
pub struct ActiveDelays {
    module: Module,
    /// The variable; `None` on the CPU.
    place: Option<Range>,
    points: Vec<&'static str>,
    /// Ends after `drop` has cleared the words.
    _session: Session,
}

impl Module {
    /// Delays a thread that passes one of the points with these names with a probability of 1 in
    /// `one_in`, for 20 to 200 µs; in a replay, for 2,000 to 20,000 steps. `seed` determines which
    /// threads and for how long, together with the clock. Points that the module's kernels do not
    /// pass have no effect. Waits for the device. The program can have one [`ActiveDelays`] at a
    /// time.
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule) if the kernels were built without the feature
    /// `delays` of `warpheap-device`; [`InvalidConfig`](crate::Error::InvalidConfig) if delays are
    /// already switched on, or with more than 255 points; or an earlier failure of the device.
    pub fn delay(&self, seed: u64, one_in: u32, points: &[&'static str]) -> Result<ActiveDelays> {
        let _session = Session::begin()?;
        let missing = InvalidModule::NoDelays { symbol: SYMBOL };
        let place = self.code().variable(SYMBOL, size_of::<[u64; WORDS]>() as u64, missing)?;
        let nanos = if self.device().info()?.replays { STEPS } else { NANOS };
        let words =
            words(&Settings { seed, one_in, nanos, points }).ok_or_else(|| InvalidConfig::Delays {
                why: format!("there is room for 255 points, and {} were given", points.len()),
            })?;
        let delays = ActiveDelays { module: self.clone(), place, points: points.to_vec(), _session };
        delays.write(words)?;
        Ok(delays)
    }
}

impl ActiveDelays {
    /// Waits for the device, then returns the number of delays at each point since they were
    /// switched on.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn counts(&self) -> Result<Vec<(&'static str, u64)>> {
        let device = self.module.device();
        device.driver().synchronize()?;
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
        self.module.while_idle(|_| {
            let Some(Range { address: to, bytes }) = self.place else {
                of_program().write(&words);
                return Ok(());
            };
            let write = Transfer::Write { to, from: words.as_ptr().cast(), bytes: bytes as usize };
            // SAFETY: the range is the variable, whose size was checked; no kernel of the module
            // runs.
            unsafe { self.module.device().driver().transfer(write) }
        })
    }
}

impl Drop for ActiveDelays {
    fn drop(&mut self) {
        if let Err(error) = self.write([0; WORDS]) {
            tracing::warn!(%error, "the delays of a module could not be switched off");
        }
    }
}
