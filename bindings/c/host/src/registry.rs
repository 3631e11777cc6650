//! The pools of one kind, by id.
//!
//! I1: an id is given to one pool only, and 0 to none. I2: the ids of two kinds differ in the
//! highest byte, so an id of another kind is not found.
//!
//! In a forked child, every call that needs a pool fails here, before any lock: another thread may
//! have held it at the fork.

use crate::failure::{Failure, Result};
use crate::lock::{read, write};
use crate::status::wh_status::WH_INVALID_HANDLE;
use host::driver::check_process;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// Ids of a kind start at a multiple of this.
const IDS: u64 = 1 << 56;

pub(crate) struct Registry<T> {
    /// The kind in the names of functions.
    kind: &'static str,
    /// The kind in texts.
    name: &'static str,
    first: u64,
    live: RwLock<Live<T>>,
}

struct Live<T> {
    created: u64,
    pools: BTreeMap<u64, Arc<T>>,
}

impl<T> Registry<T> {
    /// The pools of `kind`, which has a number of its own, from 0.
    pub const fn new(kind: &'static str, name: &'static str, number: u64) -> Registry<T> {
        let live = RwLock::new(Live { created: 0, pools: BTreeMap::new() });
        Registry { kind, name, first: number * IDS + 1, live }
    }

    /// Adds a pool and returns its id.
    pub fn insert(&self, pool: T) -> u64 {
        let mut live = write(&self.live);
        let id = self.first + live.created;
        live.created += 1;
        live.pools.insert(id, Arc::new(pool));
        id
    }

    pub fn get(&self, id: u64) -> Result<Arc<T>> {
        check_process()?;
        let live = read(&self.live);
        live.pools.get(&id).cloned().ok_or_else(|| self.absent(id, live.created))
    }

    /// Removes a pool. It is freed when its last user drops the result.
    pub fn remove(&self, id: u64) -> Result<Arc<T>> {
        check_process()?;
        let mut live = write(&self.live);
        let created = live.created;
        live.pools.remove(&id).ok_or_else(|| self.absent(id, created))
    }

    #[cold]
    fn absent(&self, id: u64, created: u64) -> Failure {
        let (kind, name) = (self.kind, self.name);
        let text = match id {
            0 => format!("the {name} is null (its id is 0); pass one that wh_{kind}_create returned"),
            id if (self.first..self.first + created).contains(&id) => {
                format!(
                    "the {name} with the id {id:#x} was destroyed; wh_{kind}_destroy must be its last use"
                )
            }
            id => format!("there is no {name} with the id {id:#x}; pass one that wh_{kind}_create returned"),
        };
        Failure::new(WH_INVALID_HANDLE, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_used_once_and_by_one_kind() {
        let (heaps, lists) = (Registry::new("heap", "heap", 0), Registry::new("freelist", "free list", 1));
        let (first, second, list) = (heaps.insert('a'), heaps.insert('b'), lists.insert('c'));
        assert_eq!((*heaps.get(second).unwrap(), *lists.get(list).unwrap()), ('b', 'c'));
        let held = heaps.get(first).unwrap();
        assert_eq!((*heaps.remove(first).unwrap(), *held), ('a', 'a'));
        assert!(heaps.insert('d') > second);
        let text = |id| heaps.get(id).unwrap_err().text;
        assert!(text(0).starts_with("the heap is null"), "{}", text(0));
        assert!(text(first).contains("was destroyed"), "{}", text(first));
        assert!(text(list).starts_with("there is no heap"), "{}", text(list));
        assert_eq!(heaps.remove(first).unwrap_err().status, WH_INVALID_HANDLE);
    }
}
