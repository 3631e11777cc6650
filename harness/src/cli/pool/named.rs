//! Pools by name.

use super::super::status::Failure;
use warpheap_harness::pool_tools::{POOLS, PoolKind};

/// The pools with that name, or all.
pub fn pools(name: &str) -> Result<Vec<&'static PoolKind>, Failure> {
    let named: Vec<_> = POOLS.iter().filter(|kind| name == "all" || kind.name == name).collect();
    if named.is_empty() {
        let names: Vec<_> = POOLS.iter().map(|kind| kind.name).collect();
        return Err(Failure::usage(format_args!(
            "there is no pool `{name}`; there are {}",
            names.join(", ")
        )));
    }
    Ok(named)
}
