//! Checks of PTX before it is loaded.

use crate::error::Error;
use std::path::Path;
use warpheap_ptx::{entries, functions, unresolved};

/// Rejects PTX without a kernel, and PTX that no driver can link.
pub(crate) fn check(path: &Path, ptx: &str) -> Result<(), Error> {
    check_symbols(path, ptx)?;
    if entries(ptx).next().is_none() {
        return Err(Error::NoEntry(path.into()));
    }
    Ok(())
}

/// Rejects a library without a function, and one that no driver can link.
pub(crate) fn check_library(path: &Path, ptx: &str) -> Result<(), Error> {
    check_symbols(path, ptx)?;
    if functions(ptx).next().is_none() {
        return Err(Error::NoFunction(path.into()));
    }
    Ok(())
}

fn check_symbols(path: &Path, ptx: &str) -> Result<(), Error> {
    let symbols: Vec<String> = unresolved(ptx).map(String::from).collect();
    if !symbols.is_empty() {
        return Err(Error::Unresolved { path: path.into(), symbols });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = ".version 7.0\n.target sm_70\n.visible .entry double(\n.param .u64 p\n)\n{ ret; }\n";

    fn said(ptx: &str) -> String {
        check(Path::new("k.ptx"), ptx).unwrap_err().to_string()
    }

    #[test]
    fn a_kernel_passes() {
        check(Path::new("k.ptx"), KERNEL).unwrap();
    }

    #[test]
    fn ptx_without_a_kernel_is_rejected() {
        assert!(said(".version 7.0\n.func helper()\n{ ret; }\n").contains("contains no kernel"));
    }

    #[test]
    fn a_library_has_functions_and_needs_no_kernel() {
        let library = ".version 7.0\n.target sm_70\n.visible .func  (.param .b64 func_retval0) wh_malloc(\n\
                       .param .b64 wh_malloc_param_0\n)\n{ ret; }\n.visible .func wh_free()\n{ ret; }\n\
                       .func inner()\n{ ret; }\n";
        check_library(Path::new("l.ptx"), library).unwrap();
        let none = check_library(Path::new("l.ptx"), KERNEL).unwrap_err().to_string();
        assert!(none.contains("no device function"), "{none}");
    }

    #[test]
    fn unresolved_symbols_are_named() {
        let bad = ".extern .func  (.param .b32 func_retval0) memcmp\n(\n.extern .func abort_it()\n;\n\
                   .extern .global .align 4 .u32 LIMIT;\n.extern .func (.param .b32 r) vprintf\n\
                   .extern .shared .align 16 .b8 buffer[];\n";
        let said = said(&format!("{bad}{KERNEL}"));
        assert!(said.ends_with(": memcmp, abort_it, LIMIT"), "{said}");
    }
}
