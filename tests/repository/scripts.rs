//! Scripts end at the first failure.

use crate::files::tracked;

/// Continues after a failure, and checks every exit status itself.
const CHECKS_ITSELF: &str = "scripts/gpu-suite.sh";

fn is_strict(text: &str) -> bool {
    text.starts_with("#!/usr/bin/env bash\n") && text.contains("\nset -euo pipefail\n")
}

#[test]
fn scripts_are_strict() {
    let Some(files) = tracked() else { return };
    let is_script = |name: &str| name == ".ci/run" || name.ends_with(".sh") && name != CHECKS_ITSELF;
    let scripts: Vec<_> = files.iter().filter(|(name, _)| is_script(name)).collect();
    assert!(scripts.len() >= 7, "{} scripts", scripts.len());
    for (name, text) in scripts {
        assert!(is_strict(text), "{name}");
    }
}

#[test]
fn a_script_that_continues_is_reported() {
    assert!(is_strict("#!/usr/bin/env bash\nset -euo pipefail\n"));
    assert!(!is_strict("#!/usr/bin/env bash\nset -uo pipefail\n"));
}
