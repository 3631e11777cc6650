//! The functions of C's library in the PTX of kernels that call them, and of others.

use crate::support::built_with;

const NAMES: [&str; 6] = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// The body of the weak function `name`.
fn body<'a>(ptx: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = ptx.split_once(&format!("\t// .weak\t{name}\n"))?;
    Some(rest.split_once("\n}")?.0)
}

#[test]
fn kernels_contain_the_functions_that_they_call_and_no_others() {
    let Some(ptx) = built_with("tests/language/src/kernels", "sm_80", |builder| builder) else { return };
    for name in NAMES {
        let body = body(&ptx, name).unwrap_or_else(|| panic!("{name}"));
        assert!(body.contains("\tret;") && !body.contains("call"), "{name} is complete: {body}");
    }
    let Some(others) = built_with("harness/kernels", "sm_80", |builder| builder) else { return };
    assert!(!others.contains(".weak .func"));
}
