//! Random sequences of calls, with arguments that are valid, null, misaligned, foreign, freed or
//! huge: each returns a documented status, failures have a text, and live blocks do not overlap.
//!
//! `calls` makes the calls; [`State`] remembers what they returned. `WARPHEAP_FUZZ_CALLS` and
//! `WARPHEAP_FUZZ_SEED` set the number of sequences and what they are; `scripts/fuzz.sh` runs many.
//!
//! A module of the library's unit tests: another crate cannot depend on a `cdylib`.

mod calls;

use crate::bump::{wh_bump_destroy, wh_bump_owner};
use crate::call::{wh_last_error, wh_string_free};
use crate::freelist::{wh_freelist_destroy, wh_freelist_owner};
use crate::heap::{wh_heap_destroy, wh_heap_owner};
use crate::pool::{wh_pool, wh_pool_destroy};
use crate::status::wh_status::{self, *};
use calls::{Call, call};
use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::ffi::{CStr, c_char, c_void};

fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

#[test]
fn no_sequence_of_calls_breaks_a_promise() {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&variable("WARPHEAP_FUZZ_SEED", 1).to_le_bytes());
    let cases = u32::try_from(variable("WARPHEAP_FUZZ_CALLS", 150)).expect("fewer than 2^32 cases");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let outcome = TestRunner::new_with_rng(config, rng).run(&vec(call(), 1..24), |calls: Vec<Call>| {
        let mut state = State::default();
        calls.iter().for_each(|call| call.make(&mut state));
        state.end();
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, calls)) => panic!("{why}: {calls:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// A block that a call returned.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The pool that it is of.
    owner: u64,
    address: *mut c_void,
    bytes: usize,
    is_live: bool,
}

/// A pool that a call returned.
#[derive(Clone, Copy, Debug)]
struct Owner {
    id: u64,
    kind: Kind,
    is_live: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Heap,
    Bump,
    FreeList,
    Pool,
}

#[derive(Debug, Default)]
struct State {
    owners: Vec<Owner>,
    blocks: Vec<Block>,
    /// The strings that were returned, and whether they are not freed yet.
    strings: Vec<(*mut c_char, bool)>,
}

fn destroy(kind: Kind, id: u64) -> wh_status {
    match kind {
        Kind::Heap => wh_heap_destroy(wh_heap_owner { id }),
        Kind::Bump => wh_bump_destroy(wh_bump_owner { id }),
        Kind::FreeList => wh_freelist_destroy(wh_freelist_owner { id }),
        Kind::Pool => wh_pool_destroy(wh_pool { id }),
    }
}

/// Fails on a status that no call may have, and on a failure without a text.
fn check(status: wh_status) -> wh_status {
    assert!(!matches!(status, WH_PANIC | WH_OTHER), "{status:?}: {}", last());
    assert!(status == WH_OK || !last().is_empty(), "{status:?} has no text");
    status
}

fn last() -> String {
    // SAFETY: valid until the next call of this thread.
    let text = unsafe { CStr::from_ptr(wh_last_error()) };
    text.to_str().expect("UTF-8").to_owned()
}

impl State {
    /// Whether such a pool exists. 0 and other numbers are none.
    fn is_live(&self, kind: Kind, id: u64) -> bool {
        self.owners.iter().any(|owner| owner.id == id && owner.kind == kind && owner.is_live)
    }

    /// The outcome of the creation of a pool.
    fn created(&mut self, kind: Kind, status: wh_status, id: u64) {
        assert_eq!(status == WH_OK, id != 0, "{status:?}, id {id:#x}");
        if id != 0 {
            assert!(self.owners.iter().all(|owner| owner.id != id), "{id:#x} is used twice");
            self.owners.push(Owner { id, kind, is_live: true });
        }
    }

    /// The outcome of the destruction of a pool.
    fn destroyed(&mut self, kind: Kind, status: wh_status, id: u64) {
        assert_eq!(status == WH_OK, self.is_live(kind, id), "{status:?}, id {id:#x}");
        if status == WH_OK {
            self.owners.iter_mut().filter(|owner| owner.id == id).for_each(|owner| owner.is_live = false);
            self.forget(id);
        }
    }

    /// No block of this pool is live any more.
    fn forget(&mut self, id: u64) {
        self.blocks.iter_mut().filter(|block| block.owner == id).for_each(|block| block.is_live = false);
    }

    /// The outcome of an allocation.
    fn allocated(&mut self, owner: u64, status: wh_status, address: *mut c_void, bytes: usize, align: usize) {
        assert_eq!(status == WH_OK, !address.is_null(), "{status:?}, {address:p}");
        if address.is_null() {
            return;
        }
        assert!(address.addr().is_multiple_of(align.max(1)), "{address:p} is not aligned to {align}");
        let end = |block: &Block| block.address.addr() + block.bytes.max(1);
        let new = Block { owner, address, bytes, is_live: true };
        let overlaps =
            |old: &&Block| old.is_live && old.address.addr() < end(&new) && address.addr() < end(old);
        assert!(self.blocks.iter().find(overlaps).is_none(), "{new:?} overlaps a live block");
        self.blocks.push(new);
    }

    /// The outcome of a free.
    fn freed(&mut self, kind: Kind, owner: u64, status: wh_status, address: *mut c_void) {
        let has_owner = self.is_live(kind, owner);
        let is_meant = |block: &&mut Block| {
            has_owner && block.is_live && block.owner == owner && block.address.addr() == address.addr()
        };
        let block = self.blocks.iter_mut().find(is_meant);
        assert_eq!(status == WH_OK, block.is_some(), "{status:?}: {address:p} of {owner:#x}: {}", last());
        if let Some(block) = block {
            block.is_live = false;
        }
    }

    /// A string that a call returned, or null.
    fn returned(&mut self, status: wh_status, string: *mut c_char) {
        assert_eq!(status == WH_OK, !string.is_null(), "{status:?}, {string:p}");
        if string.is_null() {
            return;
        }
        // SAFETY: the call has just returned it.
        let text = unsafe { CStr::from_ptr(string) }.to_str().expect("UTF-8");
        let is_json = text.starts_with(['{', '[']);
        assert!(!is_json || serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
        // The address of a freed string may be used again.
        self.strings.retain(|(old, _)| *old != string);
        self.strings.push((string, true));
    }

    /// The outcome of the free of a string.
    fn freed_string(&mut self, status: wh_status, string: *mut c_char) {
        let entry = self.strings.iter_mut().find(|(old, is_live)| *is_live && *old == string);
        assert_eq!(status == WH_OK, entry.is_some() || string.is_null(), "{status:?}: {string:p}");
        entry.into_iter().for_each(|(_, is_live)| *is_live = false);
    }

    /// Frees and destroys what is left.
    fn end(self) {
        for (string, _) in self.strings.into_iter().filter(|(_, is_live)| *is_live) {
            // SAFETY: no use follows.
            assert_eq!(check(unsafe { wh_string_free(string) }), WH_OK);
        }
        for Owner { id, kind, .. } in self.owners.into_iter().filter(|owner| owner.is_live) {
            assert_eq!(check(destroy(kind, id)), WH_OK, "{kind:?} {id:#x}");
        }
    }
}
