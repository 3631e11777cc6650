//! What this program was built from: the kernels' PTX, the commit, the compilers.

/// The commit, 12 digits, with `-dirty` after it when a tracked file differed; `unknown` outside git.
pub const COMMIT: &str = env!("WARPHEAP_COMMIT");

/// What compiled the kernels: `rustc 1.96.0 (...)`; `none` when there are none.
pub const DEVICE_COMPILER: &str = env!("WARPHEAP_DEVICE_RUSTC");

/// What compiled this program: `rustc 1.95.0 (...)`.
pub const HOST_COMPILER: &str = env!("WARPHEAP_HOST_RUSTC");

/// What this program runs on: `x86_64-unknown-linux-gnu`.
pub const TARGET: &str = env!("WARPHEAP_TARGET");

const PTX: &str = include_str!(env!("WARPHEAP_PTX"));
const PTX_MISSING: &str = include_str!(env!("WARPHEAP_PTX_MISSING"));

/// The kernels' PTX; or why this build has none, and what to install.
pub fn ptx() -> Result<&'static str, &'static str> {
    if PTX.is_empty() { Err(PTX_MISSING) } else { Ok(PTX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_there_are_kernels_or_a_reason() {
        match ptx() {
            Ok(ptx) => assert!(ptx.contains(".visible .entry ") && DEVICE_COMPILER.starts_with("rustc ")),
            Err(why) => assert!(!why.is_empty() && DEVICE_COMPILER == "none"),
        }
    }

    #[test]
    fn the_commit_is_one_or_unknown() {
        let digits = COMMIT.trim_end_matches("-dirty");
        let is_commit = digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_commit || COMMIT == "unknown", "{COMMIT}");
    }

    #[test]
    fn the_host_is_named() {
        assert!(TARGET.contains(std::env::consts::ARCH) && HOST_COMPILER.starts_with("rustc "));
    }
}
