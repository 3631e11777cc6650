//! Delays at named points of the allocators, for stress tests.
//!
//! ```text
//! settings | seed | one in | shortest, span |           all zeros: no delays
//! table    | key | count | key | count | ...            hashed by the name of a point
//! ```
//!
//! A thread that passes a point whose key is in the table waits with a probability of 1 in
//! `one in`, for `shortest` plus a random time below `span`, and adds 1 to the point's count. A
//! module of kernels has these words in the variable [`SYMBOL`]; the kernels of the CPU share those
//! of the program ([`of_program`]).
//!
//! - I1. The host writes the settings and the keys. On a GPU, no kernel of the module runs
//!   meanwhile. On the CPU, kernels of other CPU devices may run: each word is atomic and valid
//!   alone, so such a thread waits by old or new settings, or does not wait, and may add its delay
//!   to the count of another point.
//! - I2. A key of 0 is an empty slot, and there is one: [`words`] fills at most `SLOTS - 1`.
//! - I3. `span` is 0 only if no delays are switched on.

use super::AtomicU64;
use crate::thread;
use core::cell::UnsafeCell;
use core::fmt;
#[cfg(not(target_arch = "nvptx64"))]
use core::ops::Range;

/// The name of the variable in a module that is built with the feature `delays`.
pub const SYMBOL: &str = "warpheap_delays";

/// Slots of the table. A power of two, several times the number of points of an allocator.
const SLOTS: usize = 256;
/// Words of the settings.
const SETTINGS: usize = 3;
/// Words of the variable.
pub const WORDS: usize = SETTINGS + 2 * SLOTS;

/// Maximum naps of a delay, in case the clock stands still: for the CPU many more than fit in it.
const NAPS: u32 = 1 << 16;

/// The words of a module.
#[repr(transparent)]
pub struct DelayWords(UnsafeCell<[u64; WORDS]>);

// SAFETY: every access is atomic.
unsafe impl Sync for DelayWords {}

impl fmt::Debug for DelayWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayWords").finish_non_exhaustive()
    }
}

/// The words of this module, or of this program. All zeros at first.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
#[allow(non_upper_case_globals, reason = "its name in a module")]
static warpheap_delays: DelayWords = DelayWords(UnsafeCell::new([0; WORDS]));

impl DelayWords {
    #[inline(always)]
    fn word(&self, i: usize) -> &AtomicU64 {
        let words = self.0.get().cast::<AtomicU64>();
        // SAFETY: the callers pass numbers below `WORDS`.
        let word = unsafe { words.add(i) };
        // SAFETY: an atomic has the layout of its integer, and every access is atomic.
        unsafe { &*word }
    }

    /// A word that only the host writes. On the CPU no other lane runs at this load, unlike at
    /// other atomics, so delays that are switched off change no replay.
    #[inline(always)]
    fn setting(&self, i: usize) -> u64 {
        // SAFETY: on a GPU nothing writes it while a kernel runs (I1). On the CPU the load is
        // atomic.
        unsafe { self.word(i).load_unraced() }
    }

    /// The count of the point with this key, if threads are delayed there.
    fn count_of(&self, key: u64) -> Option<&AtomicU64> {
        let slot = (0..SLOTS).map(|probe| slot(key, probe)).find(|slot| {
            let found = self.setting(*slot);
            found == key || found == 0
        })?;
        (self.setting(slot) == key).then(|| self.word(slot + 1))
    }
}

/// The words of the slot that is tried at this probe: its key, then its count.
fn slot(key: u64, probe: usize) -> usize {
    // The lowest bit of a key is set.
    SETTINGS + 2 * (((key >> 32) as usize + probe) % SLOTS)
}

/// The key of a point's name: its FNV-1a hash, made odd and thus never 0.
pub(super) const fn key(name: &str) -> u64 {
    let (bytes, mut hash, mut i) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325, 0);
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash | 1
}

/// A bijection in which each bit of the result depends on all of `x` (the finalizer of SplitMix64).
fn mixed(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Delays the calling thread at the point with this key, if the seed says so.
#[inline(never)]
pub(super) fn pass(key: u64) {
    let state = &warpheap_delays;
    let [seed, one_in, times] = [0, 1, 2].map(|i| state.setting(i));
    let (shortest, span) = (times >> 32, times & 0xffff_ffff);
    // Both: on the CPU, one may be older than the other (I1).
    if one_in == 0 || span == 0 {
        return;
    }
    let Some(count) = state.count_of(key) else { return };
    let thread = u64::from(thread::block_index()) << 32 | u64::from(thread::index_in_block());
    // The clock of the SM distinguishes the passes of a thread.
    let random = mixed(mixed(mixed(seed ^ key) ^ thread) ^ thread::clock());
    if !(random as u32).is_multiple_of(one_in as u32) {
        return;
    }
    count.add_relaxed(1);
    let nanos = shortest + (random >> 32) % span;
    thread::wait(nanos as u32, NAPS);
}

/// Settings of the delays.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// Determines, with the clock, which threads wait and for how long.
    pub seed: u64,
    /// A thread that passes a point waits with a probability of 1 in this number. At least 1.
    pub one_in: u32,
    /// Delays in nanoseconds of the clock.
    pub nanos: Range<u32>,
    /// The names of the points.
    pub points: &'a [&'static str],
}

/// The words of these settings, for the host to write. `None` if there are too many points. An
/// empty range of delays has its start.
#[cfg(not(target_arch = "nvptx64"))]
pub fn words(settings: &Settings<'_>) -> Option<[u64; WORDS]> {
    let Settings { seed, one_in, nanos: Range { start, end }, points } = settings;
    let span = end.saturating_sub(*start).max(1);
    let times = u64::from(*start) << 32 | u64::from(span);
    let mut words = [0; WORDS];
    words[..SETTINGS].copy_from_slice(&[*seed, (*one_in).max(1).into(), times]);
    if points.len() >= SLOTS {
        return None;
    }
    for key in points.iter().map(|name| key(name)) {
        let free = (0..SLOTS).map(|probe| slot(key, probe)).find(|slot| [0, key].contains(&words[*slot]))?;
        words[free] = key;
    }
    Some(words)
}

/// The delays that took place at each of these points, in the words of a module.
#[cfg(not(target_arch = "nvptx64"))]
pub fn counts(words: &[u64; WORDS], points: &[&str]) -> std::vec::Vec<u64> {
    let count_at = |name: &&str| {
        let key = key(name);
        let found = (0..SLOTS).map(|probe| slot(key, probe)).find(|slot| words[*slot] == key);
        found.map_or(0, |slot| words[slot + 1])
    };
    points.iter().map(count_at).collect()
}

/// The words of this program, which its kernels on the CPU read.
#[cfg(not(target_arch = "nvptx64"))]
pub fn of_program() -> &'static DelayWords {
    &warpheap_delays
}

#[cfg(not(target_arch = "nvptx64"))]
impl DelayWords {
    /// Reads all words.
    pub fn read(&self) -> [u64; WORDS] {
        core::array::from_fn(|i| self.word(i).load_relaxed())
    }

    /// Writes all words: those of [`words`], or zeros. The settings last, so that a thread which
    /// passes meanwhile seldom finds them with the keys of others (I1).
    pub fn write(&self, words: &[u64; WORDS]) {
        let store = |i: usize| self.word(i).store_relaxed(words[i]);
        (SETTINGS..WORDS).chain(0..SETTINGS).for_each(store);
    }
}
