//! Writes a register limit into PTX, because rustc has no option for it.

use crate::error::{Error, io};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Valid values of `.maxnreg`.
pub(crate) const ALLOWED: RangeInclusive<u32> = 16..=255;

/// Copies a PTX file with a register limit on each kernel.
pub(crate) fn write_limited(ptx: &Path, limited: PathBuf, count: u32) -> Result<PathBuf, Error> {
    let text = fs::read_to_string(ptx).map_err(io("read", ptx))?;
    fs::write(&limited, limit(&text, count)).map_err(io("write", &limited))?;
    Ok(limited)
}

/// Inserts `.maxnreg` between the parameters and the body of every kernel.
fn limit(ptx: &str, count: u32) -> String {
    let mut limited = String::with_capacity(ptx.len() + 64);
    let mut in_head = false;
    for line in ptx.split_inclusive('\n') {
        in_head |= line.trim_start().starts_with(".visible .entry ");
        if in_head && line.trim_start().starts_with('{') {
            limited.push_str(&format!(".maxnreg {count}\n"));
            in_head = false;
        }
        limited.push_str(line);
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    fn every_kernel_gets_the_limit_and_no_function_does() {
        let ptx = ".visible .entry a(\n\t.param .u64 a_0\n)\n{\n\tret;\n}\n.func f()\n{\n\tret;\n}\n.visible .entry b()\n{\n\t{ ret; }\n}\n";
        let expected = ".visible .entry a(\n\t.param .u64 a_0\n)\n.maxnreg 32\n{\n\tret;\n}\n.func f()\n{\n\tret;\n}\n.visible .entry b()\n.maxnreg 32\n{\n\t{ ret; }\n}\n";
        assert_eq!(limit(ptx, 32), expected);
    }
}
