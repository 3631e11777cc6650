//! Resources that one call of the heap costs a kernel that does nothing else, according to NVIDIA's
//! ptxas for sm_90: with the program's register limit, with the bar's limit, and without a limit.
//! Without ptxas the test passes, unless `WARPHEAP_REQUIRE_PTXAS=1`. With `--nocapture` it prints
//! the figures as table rows.
//!
//! The bar is 40 registers for an allocation and 32 for a free, without spills. If the program's
//! kernels are linked by the driver, with each function compiled once, both meet it at the call: 32
//! registers and no spills; functions off the fast path spill. If each kernel is compiled with
//! copies of all functions it can reach, neither meets it: each spills a little at the call.
//! Without a limit, a free then takes 46 registers, and an allocation all, because the count
//! includes every function that the kernel can reach.

use crate::support::assembler::{Part, Usage, assemble, assemble_apart, ptxas};
use crate::support::built_with;

/// The register limit of the program's kernels, and the bar for a free.
const LIMIT: u32 = 32;

/// The bar for an allocation.
const ALLOCATION_BAR: u32 = 40;

/// The limits of a kernel: the bar where it is met, otherwise the figures of ptxas 13.0.
struct Most {
    kernel: &'static str,
    registers: u32,
    /// Bytes of spills in the kernel's own code, at the call.
    own_spills: u32,
    /// Bytes of spills in all functions it can reach.
    spills: u32,
}

const fn max(kernel: &'static str, registers: u32, own_spills: u32, spills: u32) -> Most {
    Most { kernel, registers, own_spills, spills }
}

const LIMITED: [Most; 5] = [
    max("site_store", 10, 0, 0),
    max("site_load", 8, 0, 0),
    max("site_free", 32, 4, 24),
    max("site_alloc", 32, 28, 10220),
    max("site_alloc_any", 32, 32, 10344),
];

const AT_THE_BAR: [Most; 5] = [
    max("site_store", 10, 0, 0),
    max("site_load", 8, 0, 0),
    max("site_free", 40, 0, 0),
    max("site_alloc", 40, 28, 9012),
    max("site_alloc_any", 40, 32, 9144),
];

const UNLIMITED: [Most; 5] = [
    max("site_store", 10, 0, 0),
    max("site_load", 8, 0, 0),
    max("site_free", 46, 0, 0),
    max("site_alloc", 255, 4, 180),
    max("site_alloc_any", 255, 4, 192),
];

/// Kernels over their limits: more registers than listed, or over a tenth more spills.
fn over<'a>(usages: &'a [Usage], max: &[Most]) -> Vec<&'a Usage> {
    let listed = |usage: &Usage| max.iter().find(|max| max.kernel == usage.kernel);
    let is_over = |usage: &&Usage| {
        listed(usage).is_none_or(|max| {
            usage.registers > max.registers
                || usage.own_spill_bytes > max.own_spills + max.own_spills / 10
                || usage.spill_bytes > max.spills + max.spills / 10
        })
    };
    usages.iter().filter(is_over).collect()
}

/// Table rows of the figures.
fn lines(usages: &[Usage]) -> String {
    let line = |usage: &Usage| {
        let Usage { kernel, registers, own_spill_bytes, spill_bytes, .. } = usage;
        format!("    max({kernel:?}, {registers}, {own_spill_bytes}, {spill_bytes}),\n")
    };
    usages.iter().map(line).collect()
}

fn check(what: &str, limit: Option<u32>, max: &[Most]) {
    let Some(ptxas) = ptxas() else { return };
    let ptx = built_with("tests/call_sites", "sm_80", |builder| match limit {
        Some(registers) => builder.max_registers(registers),
        None => builder,
    });
    let Some(ptx) = ptx else { return };
    let usages = assemble(&ptxas, &ptx, "sm_90");
    println!("{what}:\n{}", lines(&usages));
    assert_eq!(usages.len(), max.len(), "{usages:#?}");
    let over = over(&usages, max);
    assert!(over.is_empty(), "{what}, these take more than listed: {over:#?}; all:\n{}", lines(&usages));
}

/// If the driver links the program's kernels, each call meets the bar.
fn check_linked() {
    let Some(ptxas) = ptxas() else { return };
    let Some(ptx) = built_with("tests/call_sites", "sm_80", |builder| builder.max_registers(LIMIT)) else {
        return;
    };
    let parts = assemble_apart(&ptxas, &ptx, "sm_90");
    let sites: Vec<_> = parts.iter().filter(|part| part.name.starts_with("site_")).collect();
    assert_eq!(sites.len(), LIMITED.len(), "{parts:#?}");
    let over =
        |part: &&&Part| part.spill_bytes > 0 || part.registers.is_none_or(|registers| registers > LIMIT);
    let over: Vec<_> = sites.iter().filter(over).collect();
    assert!(over.is_empty(), "linked, these take more than {LIMIT} registers, or spill: {over:#?}");
}

// A single test, because every build of the crate uses the same folder.
#[test]
fn a_call_takes_no_more_than_is_listed() {
    check_linked();
    check("at most 32 registers", Some(LIMIT), &LIMITED);
    check("at most 40 registers", Some(ALLOCATION_BAR), &AT_THE_BAR);
    check("without a limit", None, &UNLIMITED);
}

#[test]
fn kernels_over_the_limits_are_reported() {
    let usage = |registers, own_spill_bytes, spill_bytes| Usage {
        kernel: "site_free".into(),
        registers,
        own_spill_bytes,
        spill_bytes,
        ..Usage::default()
    };
    let listed = [max("site_free", 32, 0, 0)];
    assert!(over(&[usage(32, 0, 0)], &listed).is_empty());
    for worse in [usage(33, 0, 0), usage(32, 8, 8), usage(32, 0, 8)] {
        assert_eq!(over(std::slice::from_ref(&worse), &listed), [&worse]);
    }
    assert_eq!(over(&[Usage { kernel: "site_other".into(), ..usage(1, 0, 0) }], &listed).len(), 1);
}
