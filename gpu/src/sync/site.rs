//! Names for the places where an ordering matters, so that a model checker can weaken them one at a
//! time, and for other points at which a stress test can delay a thread.

/// The name of one fence or one non-relaxed operation in the source.
///
/// In a normal build it holds nothing and costs nothing. Under `--cfg loom` it holds its name, and
/// the operation that carries it becomes relaxed while `weaken` names it. An operation that
/// acquires and releases can also lose one half alone. Operations and fences without a site are
/// never weakened.
///
/// With the feature `delays` it holds a key of its name, and a thread can be delayed before the
/// operation. A site that no operation carries marks another point where a delay matters, such as
/// between two relaxed operations: see [`delay`](Self::delay).
#[derive(Clone, Copy, Debug)]
pub struct Site {
    #[cfg(loom)]
    name: &'static str,
    #[cfg(all(feature = "delays", not(loom)))]
    key: u64,
}

impl Site {
    /// Creates a site called `name`, by convention `structure/role`: `"freelist/claim"`.
    #[cfg_attr(not(any(loom, feature = "delays")), allow(unused_variables))]
    pub const fn new(name: &'static str) -> Self {
        Site {
            #[cfg(loom)]
            name,
            #[cfg(all(feature = "delays", not(loom)))]
            key: super::delay::key(name),
        }
    }

    /// A point at which a stress test can delay the calling thread. Operations and fences that
    /// carry a site call it first. Empty without the feature `delays`, and under loom.
    #[inline(always)]
    pub fn delay(self) {
        #[cfg(all(feature = "delays", not(loom)))]
        super::delay::pass(self.key);
    }

    /// Whether a model checker is weakening this site.
    #[inline(always)]
    pub(crate) fn is_weakened(self) -> bool {
        #[cfg(loom)]
        return weakened::is(self.name, "");
        #[cfg(not(loom))]
        false
    }

    /// Whether a model checker is weakening the acquire and the release of this site.
    #[inline(always)]
    pub(crate) fn weakened_halves(self) -> (bool, bool) {
        #[cfg(loom)]
        return (weakened::is(self.name, ":acquire"), weakened::is(self.name, ":release"));
        #[cfg(not(loom))]
        (false, false)
    }
}

#[cfg(loom)]
mod weakened {
    use std::string::String;
    use std::sync::Mutex;

    static NAME: Mutex<Option<String>> = Mutex::new(None);

    /// Whether the site called `name`, or this half of it, is weakened.
    pub(super) fn is(name: &str, half: &str) -> bool {
        let weak = NAME.lock().unwrap();
        weak.as_deref()
            .and_then(|weak| weak.strip_prefix(name))
            .is_some_and(|rest| rest.is_empty() || rest == half)
    }

    pub(super) fn set(name: Option<&str>) {
        *NAME.lock().unwrap() = name.map(String::from);
    }
}

/// Runs `body` with the ordering of the site called `name` weakened to relaxed, in the whole
/// process. `"NAME:acquire"` and `"NAME:release"` name one half of an ordering that has both.
#[cfg(loom)]
pub fn weaken<R>(name: &str, body: impl FnOnce() -> R) -> R {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            weakened::set(None);
        }
    }
    weakened::set(Some(name));
    let _restore = Restore;
    body()
}
