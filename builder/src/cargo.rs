//! The nested cargo: its environment, the metadata of a package, and the call that compiles it.

use crate::arch::{Arch, TARGET};
use crate::compiler::{Compiler, INLINE_LESS};
use crate::error::{Error, io};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of an outer cargo, or of its user, that would affect the nested one.
const STRIPPED: &str = "RUSTFLAGS RUSTDOCFLAGS RUSTC RUSTDOC RUSTC_BOOTSTRAP RUSTC_LINKER RUSTUP_TOOLCHAIN \
    RUST_RECURSION_COUNT CARGO CARGO_ENCODED_RUSTDOCFLAGS CARGO_INCREMENTAL CARGO_MAKEFLAGS MAKEFLAGS MFLAGS \
    OUT_DIR TARGET HOST NUM_JOBS OPT_LEVEL PROFILE DEBUG CLIPPY_ARGS";

/// Prefixes of further such variables.
const STRIPPED_PREFIXES: &str = "CARGO_BUILD_ CARGO_PROFILE_ CARGO_TARGET_ CARGO_UNSTABLE_ CARGO_CFG_ \
    CARGO_FEATURE_ CARGO_PKG_ CARGO_MANIFEST_ CARGO_BIN_ CARGO_CRATE_ CARGO_PRIMARY_ DEP_";

/// Set to the empty string, which also overrides cargo's configuration files.
const EMPTIED: [&str; 3] = [FLAGS, "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"];

/// Flags for every crate that is compiled for the device, separated by the byte 0x1f.
const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";

/// Whether an inherited variable must not reach the nested cargo.
pub(crate) fn is_stripped(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let mut prefixes = STRIPPED_PREFIXES.split_whitespace();
    STRIPPED.split_whitespace().any(|stripped| stripped == name)
        || prefixes.any(|prefix| name.starts_with(prefix))
}

/// A cargo that compiles with `compiler`, in the folder of `manifest`, without inherited settings.
pub(crate) fn cargo(compiler: &Compiler, manifest: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_stripped(name)) {
        command.env_remove(name);
    }
    for name in EMPTIED {
        command.env(name, "");
    }
    // The kernels use unstable language features and -Zbuild-std. This enables them on a stable
    // compiler.
    command.env("RUSTC", &compiler.rustc).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TERM_COLOR", "never");
    command.current_dir(manifest.parent().unwrap_or(Path::new(".")));
    command
}

/// Runs [`cargo()`] with `flags` for every crate.
pub(crate) fn cargo_with(compiler: &Compiler, manifest: &Path, flags: &str) -> Command {
    let mut command = cargo(compiler, manifest);
    command.env(FLAGS, flags);
    command
}

/// The flags with which `compiler` compiles for `arch`. They apply to every crate, so that each can
/// test `cfg(target_feature = "sm_80")`.
pub(crate) fn flags(compiler: &Compiler, arch: Arch, for_size: bool) -> String {
    let ptx_version = arch.ptx_version();
    let mut flags = format!("-Ctarget-cpu={arch}\x1f-Ctarget-feature=+ptx{ptx_version}");
    let size = if for_size { &INLINE_LESS[..] } else { &[] };
    for arg in compiler.llvm_args.iter().chain(size) {
        flags.push('\x1f');
        flags.push_str(arg);
    }
    flags
}

/// The parts of the kernel crate's metadata that a build needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub name: String,
    /// Name of the library, which is also that of its output files. `None` for a crate without a
    /// library.
    pub library: Option<String>,
    pub edition: String,
    pub manifest: PathBuf,
    pub workspace_root: PathBuf,
    pub target_dir: PathBuf,
}

impl Package {
    /// Reads the metadata of the crate in `folder` from cargo.
    pub fn read(compiler: &Compiler, folder: &Path) -> Result<Package, Error> {
        let manifest = folder.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(Error::NoKernelCrate(folder.into()));
        }
        let manifest = manifest.canonicalize().map_err(io("resolve", &manifest))?;
        let mut command = cargo(compiler, &manifest);
        command.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(&manifest);
        let output = run(&mut command)?;
        let invalid = |output: String| Error::Metadata { manifest: manifest.clone(), output };
        if !output.succeeded {
            return Err(invalid(output.stderr));
        }
        let metadata: Value =
            serde_json::from_str(&output.stdout).map_err(|error| invalid(error.to_string()))?;
        let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_this = |package: &Value| Path::new(&text(&package["manifest_path"])) == manifest;
        let package = list(&metadata["packages"]).into_iter().find(is_this);
        let package =
            package.ok_or_else(|| invalid("the manifest declares a workspace, but no package".into()))?;
        let is_library =
            |target: &Value| list(&target["kind"]).iter().any(|kind| text(kind).ends_with("lib"));
        let library = list(&package["targets"]).into_iter().find(is_library);
        Ok(Package {
            name: text(&package["name"]),
            library: library.map(|library| text(&library["name"]).replace('-', "_")),
            edition: text(&package["edition"]),
            workspace_root: text(&metadata["workspace_root"]).into(),
            target_dir: text(&metadata["target_directory"]).into(),
            manifest,
        })
    }
}

/// Settings of one compilation.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub debug_assertions: bool,
    pub line_info: bool,
    pub max_registers: Option<u32>,
    pub for_size: bool,
    /// Whether the PTX is a library of functions instead of kernels.
    pub device_library: bool,
    pub build_args: Vec<OsString>,
}

impl Options {
    /// The arguments that compile `package` to the file `ptx`.
    pub fn arguments(&self, package: &Package, target_dir: &Path, ptx: &Path) -> Vec<OsString> {
        let mut args: Vec<OsString> =
            ["rustc", "--lib", "--crate-type=cdylib", "--release", "--target", TARGET]
                .into_iter()
                // Diagnostics as text, and on stdout one line for each compiled crate.
                .chain(["--message-format=json-render-diagnostics"])
                .chain(["-Zbuild-std=core,alloc", "--manifest-path"])
                .map(OsString::from)
                .collect();
        args.push(package.manifest.clone().into());
        args.extend(["--target-dir".into(), target_dir.into()]);
        for setting in self.profile() {
            args.extend(["--config".into(), format!("profile.release.{setting}").into()]);
        }
        args.extend(self.build_args.iter().cloned());
        args.extend(["--".into(), joined("--emit=asm=", ptx)]);
        // There is nothing to link. `extern "ptx-kernel"` works whether or not the crate enables
        // the feature.
        let rest =
            ["-Zno-link", "-Zcrate-attr=feature(abi_ptx)", "-Aduplicate_features", "-Aunused_features"];
        args.extend(rest.map(OsString::from));
        args
    }

    /// One module, with link-time optimisation: PTX has no linker. Always optimised, also with
    /// checks: unoptimised kernels are not supported.
    fn profile(&self) -> [String; 7] {
        // Full debug information adds `debug` to the `.target` directive: the assembler then keeps
        // what source-level debugging needs. Line directives alone have no cost.
        let debug = if self.line_info { "line-directives-only" } else { "none" };
        [
            "opt-level=3".into(),
            "panic=\"abort\"".into(),
            "lto=\"fat\"".into(),
            "codegen-units=1".into(),
            format!("debug=\"{debug}\""),
            format!("debug-assertions={}", self.debug_assertions),
            format!("overflow-checks={}", self.debug_assertions),
        ]
    }
}

pub(crate) fn joined(flag: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(flag);
    argument.push(path);
    argument
}

/// The features of `krate` in `messages`, the output of a build. `None` if the build has no such
/// crate.
pub(crate) fn features(messages: &str, krate: &str) -> Option<Vec<String>> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_library = |message: &Value| {
        let target = &message["target"];
        target["name"] == krate
            && target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"lib".into()))
    };
    let artifact = messages.into_iter().find(is_library)?;
    let features = artifact["features"].as_array()?.iter();
    Some(features.filter_map(|feature| feature.as_str().map(String::from)).collect())
}

/// What cargo does, in a line of its own. It pads these words to twelve columns.
const STATUS: [&str; 8] =
    ["Adding", "Blocking", "Compiling", "Downloaded", "Downloading", "Finished", "Locking", "Updating"];

/// Diagnostics of a build for a person: without what cargo does, a warning about the PTX version,
/// which rustc prints for each crate, the numbers of warnings, and the command line of a rustc that
/// reported errors.
pub(crate) fn readable(diagnostics: &str) -> String {
    let is_noise = |line: &&str| {
        let status = line.get(..12).map(str::trim_start).filter(|_| line.get(12..13) == Some(" "));
        let command = line.strip_prefix("  process didn't exit successfully: `");
        status.is_some_and(|word| STATUS.contains(&word))
            || line.starts_with("warning: `") && line.contains("` (lib) generated ")
            || command.is_some_and(|rest| {
                let reported = rest.ends_with("(exit status: 1)") || rest.ends_with("(exit status: 101)");
                reported && rest.contains("rustc ")
            })
    };
    let is_dropped = |paragraph: &String| {
        paragraph.is_empty()
            || paragraph == "Caused by:"
            || paragraph.starts_with("warning: unstable feature specified for `-Ctarget-feature`: `ptx")
    };
    let lines = |text: &str| text.lines().filter(|line| !is_noise(line)).collect::<Vec<_>>().join("\n");
    // Status lines precede a paragraph without a blank line between.
    let paragraphs = diagnostics.split("\n\n").map(lines).filter(|paragraph| !is_dropped(paragraph));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    if text.is_empty() { text } else { text + "\n" }
}

/// Result and output of a program.
pub(crate) struct Output {
    pub succeeded: bool,
    pub stdout: String,
    pub stderr: String,
    /// How it ended: `exit status: 1`, `signal: 11 (SIGSEGV)`.
    pub end: String,
}

impl Output {
    /// All that it printed, or how it ended if it printed nothing.
    pub fn messages(&self) -> String {
        let all = [&self.stdout, &self.stderr].map(|text| text.trim_end());
        let all: Vec<_> = all.into_iter().filter(|text| !text.is_empty()).collect();
        if all.is_empty() { self.end.clone() } else { all.join("\n") }
    }
}

pub(crate) fn run(command: &mut Command) -> Result<Output, Error> {
    let output =
        command.output().map_err(|source| Error::Run { program: command.get_program().into(), source })?;
    Ok(Output {
        succeeded: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        end: output.status.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_program_that_prints_nothing_says_how_it_ended() {
        let messages = |script: &str| run(Command::new("sh").args(["-c", script])).unwrap().messages();
        assert!(messages("kill -SEGV $$").starts_with("signal: 11"), "{}", messages("kill -SEGV $$"));
        assert_eq!(messages("exit 3"), "exit status: 3");
        assert_eq!(messages("echo said; exit 3"), "said");
    }

    #[test]
    fn flags_of_an_outer_build_are_stripped() {
        for name in [
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS",
            "MAKEFLAGS",
            "CARGO_MAKEFLAGS",
            "OUT_DIR",
            "CARGO_CFG_LOOM",
        ] {
            assert!(is_stripped(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn features_are_those_of_the_library_not_of_its_build_script() {
        let messages = r#"
{"reason":"build-script-executed","package_id":"path+file:///gpu#warpheap-device@0.1.0"}
{"reason":"compiler-artifact","target":{"kind":["custom-build"],"name":"warpheap_device"},"features":["b"]}
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"warpheap_device"},"features":["debug","a"]}
no message
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"core"},"features":[]}"#;
        assert_eq!(features(messages, "warpheap_device").unwrap(), ["debug", "a"]);
        assert!(features(messages, "core").unwrap().is_empty());
        assert_eq!(features(messages, "alloc"), None);
    }

    #[test]
    fn diagnostics_are_those_of_the_crates() {
        let noise = "   Compiling core v0.0.0 (/core)\nwarning: unstable feature specified for `-Ctarget-feature`: \
                     `ptx70`\n  |\n  = note: it can change\n\nwarning: `warpheap-device` (lib) generated 1 warning\n   \
                     Compiling k v0.1.0 (/k)\n";
        assert_eq!(readable(noise), "");
        let error = "error[E0425]: cannot find value `x`\n --> src/lib.rs:1:1\n\nFor more information, try\n";
        let counted = "warning: `k` (lib) generated 1 warning (1 duplicate)\n";
        let failed = "error: could not compile `k` (lib)\n";
        let caused = "\nCaused by:\n  process didn't exit successfully: `/bin/rustc -O` ";
        let all = [noise, error, counted, failed, caused, "(exit status: 101)\n"].concat();
        assert_eq!(readable(&all), [error, failed].concat());
        // The reason of another failure stays.
        for reason in
            ["(signal: 9, SIGKILL: kill)\n", "(exit status: 101)\n  --- stderr\n  thread 'main' panicked\n"]
        {
            let all = [failed, caused, reason].concat();
            assert!(
                readable(&all).ends_with(reason.trim_start_matches("(exit status: 101)\n")),
                "{}",
                readable(&all)
            );
        }
        let script = "\nCaused by:\n  process didn't exit successfully: `/target/build-script-build` (exit status: 101)\n";
        assert_eq!(readable(script), script);
        let warning = "warning: unused variable: `x`\n --> src/lib.rs:1:1\n";
        assert_eq!(readable(warning), warning);
    }

    #[test]
    fn settings_that_locate_crates_and_networks_stay() {
        for name in
            ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY", "TMPDIR"]
        {
            assert!(!is_stripped(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_flags_name_the_architecture_its_ptx_and_the_arguments_for_llvm() {
        let compiler = |llvm_args: &[&'static str]| Compiler {
            rustc: "rustc".into(),
            version: String::new(),
            disables_slsr: false,
            llvm_args: llvm_args.to_vec(),
            identity: String::new(),
        };
        let small = flags(&compiler(&["-Ca"]), "sm_80".parse().unwrap(), true);
        assert!(small.ends_with(&format!("\x1f-Ca\x1f{}", INLINE_LESS.join("\x1f"))), "{small}");
        let flags = |arch: &str, llvm_args: &[_]| flags(&compiler(llvm_args), arch.parse().unwrap(), false);
        assert!(flags("sm_80", &["-Ca"]).starts_with("-Ctarget-cpu=sm_80\x1f-Ctarget-feature=+ptx"));
        assert_ne!(flags("sm_70", &[]), flags("sm_80", &[]));
        assert_eq!(flags("sm_80", &[]) + "\x1f-Ca\x1f-Cb", flags("sm_80", &["-Ca", "-Cb"]));
    }

    #[test]
    fn checks_are_compiled_in_only_when_requested() {
        let options = |debug_assertions| Options {
            debug_assertions,
            line_info: false,
            max_registers: None,
            for_size: false,
            device_library: false,
            build_args: Vec::new(),
        };
        assert!(options(false).profile().contains(&"debug-assertions=false".into()));
        assert!(options(true).profile().contains(&"overflow-checks=true".into()));
    }
}
