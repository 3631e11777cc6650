//! The panic handler with and without messages.

use crate::support::assembler::{assemble_apart, ptxas};
use crate::support::built_with;
use std::path::Path;

/// A function of `core::fmt`, in a mangled name.
const FORMATS: &str = "4core3fmt";

/// The kernels of the harness, compiled with these features of the device crate.
fn kernels(features: &[&str]) -> Option<String> {
    let gpu = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu");
    built_with("harness/kernels", "sm_80", |builder| builder.device_crate(gpu, features.iter().copied()))
}

#[test]
fn kernels_format_messages_only_if_asked_to() {
    let Some(without) = kernels(&["panic-handler"]) else { return };
    let Some(with) = kernels(&["panic-handler", "panic-message"]) else { return };
    assert!(with.contains(FORMATS) && !without.contains(FORMATS));
    let Some(ptxas) = ptxas() else { return };
    let entries = warpheap_build::entries(&with).count();
    let parts = assemble_apart(&ptxas, &with, "sm_90");
    assert_eq!(parts.iter().filter(|part| part.registers.is_some()).count(), entries);
}
