//! Allocation sites: calls in the source, each with a number.
//!
//! ```text
//! SiteTable  | site 1 | site 2 | ... |
//! site       | key | column << 32 | line | length of the name | name, its last 232 bytes ... |
//! ```
//!
//! A thread finds its site by the key, a hash of the compiler's description of the call. The first
//! thread with a new key writes the site. The name is copied, so that it remains available after
//! the kernels that allocated are unloaded.
//!
//! S1. A key is written once, by a CAS. The thread that wrote it then writes the rest of the
//! site.
//!
//! The host reads after the end of the kernel, which orders every write before the read. Wait-free.

use super::Extra;
use super::record::mixed;
use crate::heap::structures::heap_core::DEBUG;
use crate::sync::AtomicU64;
use core::fmt;
use core::panic::Location;

/// The maximum number of recorded sites. Allocations at further sites have no site number.
pub const MAX_CALL_SITES: usize = 512;
/// Number of words of a site.
pub const SITE_WORDS: usize = 32;
const NAME_WORDS: usize = SITE_WORDS - 3;
/// The maximum number of bytes of a file name. Of a longer name, the last bytes are kept.
pub const NAME_BYTES: usize = 8 * NAME_WORDS;

/// Number of places to try for a site. Unless the table is nearly full, one of the first is free.
const PROBES: usize = 32;

/// The allocation sites of a heap. A table of zeros is empty.
#[repr(transparent)]
pub struct SiteTable([[AtomicU64; SITE_WORDS]; MAX_CALL_SITES]);

impl fmt::Debug for SiteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteTable").finish_non_exhaustive()
    }
}

/// The source location of an allocation. It has no bytes in a build without the feature `debug`.
#[derive(Clone, Copy, Debug)]
pub struct CallSite([&'static Location<'static>; DEBUG as usize]);

impl CallSite {
    /// The location of the caller, or of its caller if the caller is `track_caller`, too.
    #[track_caller]
    #[inline(always)]
    pub fn here() -> Self {
        CallSite([Location::caller(); DEBUG as usize])
    }

    fn location(&self) -> Option<&'static Location<'static>> {
        self.0.first().copied()
    }
}

impl Extra {
    /// The number of a site; 0 if the table has no room for it.
    pub(super) fn number_of(&self, call: CallSite) -> u32 {
        let Some(location) = call.location() else { return 0 };
        // SAFETY: `from_raw_parts`' promise.
        let table = unsafe { &*self.sites };
        let key = key_of(location);
        for probe in 0..PROBES {
            let i = (key as usize).wrapping_add(probe) % MAX_CALL_SITES;
            let site = &table.0[i];
            let mut found = site[0].load_relaxed();
            if found == 0 {
                // Relaxed: only the host reads the rest (S1).
                found = match site[0].cas_relaxed(0, key) {
                    Ok(_) => {
                        describe(site, location);
                        key
                    }
                    Err(other) => other,
                };
            }
            if found == key {
                return i as u32 + 1;
            }
        }
        0
    }
}

/// The key of a location, never 0. It depends on the address of the compiler's description: two
/// modules may each have a description of the same call.
fn key_of(location: &'static Location<'static>) -> u64 {
    let place = u64::from(location.column()) << 32 | u64::from(location.line());
    let name = location.file();
    mixed(name.as_ptr() as u64 ^ mixed(place ^ mixed(name.len() as u64))) | 1
}

/// Writes a new site.
#[inline(never)]
fn describe(site: &[AtomicU64; SITE_WORDS], location: &Location<'_>) {
    let name = location.file().as_bytes();
    let name = &name[name.len().saturating_sub(NAME_BYTES)..];
    // Relaxed: the end of the kernel orders the writes for the host.
    site[1].store_relaxed(u64::from(location.column()) << 32 | u64::from(location.line()));
    site[2].store_relaxed(name.len() as u64);
    for (word, bytes) in site[3..].iter().zip(name.chunks(8)) {
        let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        word.store_relaxed(value);
    }
}
