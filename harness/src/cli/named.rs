//! What an option selects by name.

use super::status::Failure;
use std::borrow::Borrow;
use warpheap_harness::pool_tools::{POOLS, PoolKind};

/// The items of `all`, given with their names, that `requested` selects: every one for `all`,
/// otherwise those with a name that `is_meant`. Fails if there is none.
pub fn choose_named<N: Borrow<str>, T>(
    all: impl IntoIterator<Item = (N, T)>,
    requested: &str,
    noun: &str,
    is_meant: impl Fn(&str) -> bool,
) -> Result<Vec<T>, Failure> {
    let (names, items): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let chosen = names.iter().zip(items).filter(|(name, _)| requested == "all" || is_meant((*name).borrow()));
    let chosen: Vec<_> = chosen.map(|(_, item)| item).collect();
    if chosen.is_empty() {
        let names = names.join(", ");
        return Err(Failure::usage(format_args!("there is no {noun} `{requested}`; there are {names}")));
    }
    Ok(chosen)
}

/// The pools with that name, or all.
pub fn pools(name: &str) -> Result<Vec<&'static PoolKind>, Failure> {
    choose_named(POOLS.iter().map(|kind| (kind.name, kind)), name, "pool", |known| known == name)
}
