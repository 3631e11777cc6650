//! Builds with the installed compiler. Without one the tests pass, unless
//! `WARPHEAP_REQUIRE_COMPILER=1`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use warpheap_build::{Builder, Compiler, Error, Ptx, entries};

const KERNEL: &str = "#![no_std]
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn store(to: *mut u32) {
    unsafe { to.write(helper::VALUE) }
}
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
";

/// Whether a compiler is installed. Fails the test if one is required.
fn has_compiler() -> bool {
    let found = Compiler::find();
    let required = std::env::var_os("WARPHEAP_REQUIRE_COMPILER").is_some_and(|value| value == "1");
    assert!(found.is_ok() || !required, "{}", found.unwrap_err());
    found.is_ok()
}

/// A kernel crate called `name` with a path dependency `name-helper`, in a temporary folder. None
/// without a compiler.
fn kernels(name: &str, source: &str) -> Option<Crate> {
    has_compiler().then(|| Crate::new(name, source))
}

/// The target folder for modules. All tests use it, so that core is compiled once.
fn shared_target_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("../warpheap-build/modules")
}

struct Crate {
    root: tempfile::TempDir,
}

impl Crate {
    fn new(name: &str, source: &str) -> Self {
        let krate = Crate { root: tempfile::tempdir().unwrap() };
        let manifest = |name: &str, more: &str| {
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{more}")
        };
        // The tests share a target folder, in which packages must differ by name.
        let helper = format!("{name}-helper");
        let dependency = format!("[dependencies.helper]\npath = \"helper\"\npackage = \"{helper}\"\n");
        krate.write("Cargo.toml", &manifest(name, &format!("{dependency}[workspace]\n")));
        krate.write("src/lib.rs", source);
        krate.write("helper/Cargo.toml", &manifest(&helper, ""));
        krate.write("helper/src/lib.rs", "#![no_std]\npub const VALUE: u32 = 1111;\n");
        krate
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn builder(&self) -> Builder {
        Builder::new(self.root.path()).target_dir(shared_target_dir())
    }

    fn error(&self) -> Error {
        self.builder().build().unwrap_err()
    }
}

fn read(path: impl Into<PathBuf>) -> String {
    fs::read_to_string(path.into()).unwrap()
}

#[test]
fn builds_once_and_again_only_when_a_source_changes() {
    let Some(kernels) = kernels("fresh-kernels", KERNEL) else { return };
    let first = kernels.builder().build().unwrap();
    let text = read(&first.path);
    assert!(first.rebuilt && text.contains("1111") && text.contains(".target sm_70\n"), "{text}");
    assert_eq!(entries(&text).collect::<Vec<_>>(), ["store"]);
    assert!(!kernels.builder().build().unwrap().rebuilt);

    kernels.write("helper/src/lib.rs", "#![no_std]\npub const VALUE: u32 = 22222;\n");
    let second = kernels.builder().build().unwrap();
    assert!(second.rebuilt && read(&second.path).contains("22222"));
    assert!(!kernels.builder().build().unwrap().rebuilt);
}

/// Two steps of a merge, the smallest case of `docs/miscompiled.md`. The pass `slsr` reads
/// `numbers[2]` at offset 16 in the second step, whichever number the first one took.
const MERGE: &str = "
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn largest_two(numbers: *const u64, out: *mut u64) {
    unsafe {
        let (mut left, mut right) = (numbers.add(3), numbers.add(7));
        for step in 0..2 {
            let take_right = !(*right < *left);
            *out.add(1 - step) = *if take_right { right } else { left };
            right = right.wrapping_sub(take_right as usize);
            left = left.wrapping_sub(!take_right as usize);
        }
    }
}
";

#[test]
fn the_pass_slsr_is_turned_off() {
    let Some(kernels) = kernels("merge-kernels", &format!("{KERNEL}{MERGE}")) else { return };
    let compiler = Compiler::find().unwrap();
    assert!(compiler.disables_slsr, "{compiler}: look for a cure in docs/miscompiled.md");
    let text = read(kernels.builder().build().unwrap().path);
    assert!(text.contains("+24]") && text.contains("+56]") && !text.contains("+16]"), "{text}");
}

#[test]
fn builds_each_architecture_to_its_own_file() {
    let Some(kernels) = kernels("many-kernels", KERNEL) else { return };
    let copies = kernels.root.path().join("out/kernels.ptx");
    let built = kernels.builder().copy_to(&copies).build_archs(["sm_80", "sm_90"]).unwrap();
    for (ptx, arch) in built.iter().zip(["sm_80", "sm_90"]) {
        let text = read(&ptx.path);
        assert!(text.contains(&format!(".target {arch}\n")), "{text}");
        assert_eq!(read(copies.with_extension(format!("{arch}.ptx"))), text);
    }
    assert_eq!(built.len(), 2);
    let again = kernels.builder().build_archs(["sm_80", "sm_90"]).unwrap();
    assert!(again.iter().all(|ptx| !ptx.rebuilt), "one architecture must not undo the other");
}

#[test]
fn dependencies_see_the_target_feature() {
    let Some(kernels) = kernels("arch-kernels", KERNEL) else { return };
    let by_arch = "#![no_std]
pub const VALUE: u32 = if cfg!(target_feature = \"sm_80\") { 80808080 } else { 70707070 };
";
    kernels.write("helper/src/lib.rs", by_arch);
    for (arch, value) in [("sm_70", "70707070"), ("sm_80", "80808080"), ("sm_90", "80808080")] {
        let text = read(kernels.builder().arch(arch).build().unwrap().path);
        assert!(text.contains(value), "{arch}:\n{text}");
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_reported_with_the_compilers_message() {
    if !has_compiler() {
        return;
    }
    let message =
        Crate::new("broken-kernels", &KERNEL.replace("helper::VALUE", "missing_value")).error().to_string();
    for part in
        ["`broken-kernels` does not compile for sm_70", "cannot find value `missing_value`", "src/lib.rs:4"]
    {
        assert!(message.contains(part), "{part}\nis not in\n{message}");
    }
}

#[test]
fn sets_of_features_do_not_replace_each_other() {
    let Some(kernels) = kernels(
        "set-kernels",
        &KERNEL.replace("helper::VALUE", "if cfg!(feature = \"more\") { 4321 } else { 1234 }"),
    ) else {
        return;
    };
    let manifest = read(kernels.root.path().join("Cargo.toml"));
    kernels.write("Cargo.toml", &format!("{manifest}[features]\nmore = []\n"));
    let build = |args: &[&str]| {
        let ptx = kernels.builder().build_args(args).build().unwrap();
        let text = read(ptx.path);
        (ptx.rebuilt, text.contains("4321"), text.contains("1234"))
    };
    let more = ["--features", "more"];
    assert_eq!([build(&[]), build(&more)], [(true, false, true), (true, true, false)]);
    assert_eq!([build(&more), build(&[])], [(false, true, false), (false, false, true)]);
}

#[test]
fn kernels_optimised_for_size_are_smaller_and_in_a_file_of_their_own() {
    let rounds = "x = (x ^ x >> 7).wrapping_mul(0x9e3779b97f4a7c15).rotate_left(x as u32); ".repeat(60);
    let source = format!(
        "{KERNEL}
fn mix(mut x: u64) -> u64 {{ {rounds} x }}
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn mixed(to: *mut u64) {{
    for i in [3, 14, 15, 92, 65, 35] {{
        unsafe {{ to.add(i).write(mix(to.read() ^ mix(i as u64 + to.read()))) }}
    }}
}}
"
    );
    let Some(kernels) = kernels("small-kernels", &source) else { return };
    let [fast, small] =
        [false, true].map(|small| kernels.builder().optimize_for_size(small).build().unwrap());
    assert_ne!(fast.path, small.path);
    let [fast, small] = [fast, small].map(|ptx| read(ptx.path).len());
    assert!(small * 4 < fast * 3, "{small} bytes instead of {fast}");
}

/// Functions that call each other.
const RECURSION: &str = "
#[inline(never)]
fn even(n: u32, to: *mut u32) -> bool {
    if n == 0 { true } else { odd(n - 1, to) ^ unsafe { to.add(n as usize).read() == n } }
}
#[inline(never)]
fn odd(n: u32, to: *mut u32) -> bool {
    if n == 0 { false } else { even(n - 1, to) ^ unsafe { to.add(n as usize).read() == 3 * n } }
}
#[unsafe(no_mangle)]
pub static mut VISIBLE_TO_THE_HOST: u32 = 5;
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn parity(to: *mut u32) {
    unsafe { to.write(even(to.read(), to) as u32 + VISIBLE_TO_THE_HOST) }
}
";

/// Whether NVIDIA's tools made a cubin of each of `built`. Fails the test if they are required.
fn has_cubins(built: &[Ptx]) -> bool {
    let found = built.iter().all(|ptx| !ptx.cubins.is_empty());
    let required = std::env::var_os("WARPHEAP_REQUIRE_PTXAS").is_some_and(|value| value == "1");
    assert!(
        found || !required,
        "no ptxas with an nvlink beside it: neither in WARPHEAP_PTXAS, nor on the PATH"
    );
    found
}

#[test]
fn cubins_are_compiled_of_the_newest_ptx_and_again_only_when_it_changes() {
    let Some(kernels) = kernels("cubin-kernels", &format!("{KERNEL}{RECURSION}")) else { return };
    let copies = kernels.root.path().join("out/kernels.ptx");
    let builder = kernels.builder().cubin("sm_90").cubin("sm_75").cubin("sm_90").copy_to(&copies);
    let build = || builder.build_archs(["sm_70", "sm_80"]).unwrap();
    let built = build();
    if !has_cubins(&built) {
        return;
    }
    for (ptx, arch) in built.iter().zip(["sm_75", "sm_90"]) {
        let [one] = ptx.cubins.as_slice() else { panic!("{ptx:?}") };
        assert!(one.rebuilt && one.arch.to_string() == arch, "{one:?}");
        let bytes = fs::read(&one.path).unwrap();
        let cubin = warpheap_ptx::Cubin::read(&bytes).unwrap();
        assert!(cubin.arch == arch && cubin.is_of(&read(&ptx.path)));
        assert_eq!(fs::read(copies.with_extension(format!("{arch}.cubin"))).unwrap(), bytes);
        // Linked: recursion is divided, and variables for the host stay.
        for symbol in ["store", "parity", "VISIBLE_TO_THE_HOST", "$trampoline"] {
            let is_there = bytes.windows(symbol.len()).any(|part| part == symbol.as_bytes());
            assert!(is_there, "{arch}: no {symbol}");
        }
    }
    let rebuilt =
        |built: &[Ptx]| built.iter().map(|ptx| (ptx.rebuilt, ptx.cubins[0].rebuilt)).collect::<Vec<_>>();
    assert_eq!(rebuilt(&build()), [(false, false); 2]);
    let values = "#![no_std]\npub const VALUE: u32 = 1111;\n";
    kernels.write("helper/src/lib.rs", &format!("{values}// A comment.\n"));
    assert_eq!(rebuilt(&build()), [(true, false); 2], "the PTX is the same");
    kernels.write("helper/src/lib.rs", &values.replace("1111", "33333"));
    assert_eq!(rebuilt(&build()), [(true, true); 2]);
}

#[test]
fn ptx_that_the_assembler_rejects_is_an_error_with_its_message() {
    let bad = KERNEL.replace(
        "unsafe { to.write",
        "unsafe { core::arch::asm!(\"no_such_instruction;\") };\n    unsafe { to.write",
    );
    let bad = bad.replace("#![no_std]", "#![no_std]\n#![feature(asm_experimental_arch)]");
    let Some(kernels) = kernels("rejected-kernels", &bad) else { return };
    match kernels.builder().cubin("sm_90").build() {
        Ok(ptx) => assert!(!has_cubins(&[ptx])),
        Err(error) => {
            let message = error.to_string();
            assert!(matches!(error, Error::Assemble { .. }), "{message}");
            assert!(message.contains("for sm_90:\n") && message.contains("no_such_instruction"), "{message}");
        }
    }
}

#[test]
fn cubins_that_cannot_be_are_errors() {
    let builder = Builder::new("no/such/folder").arch("sm_90");
    let error = builder.clone().cubin("sm_80").build().unwrap_err();
    assert!(matches!(error, Error::CubinArch { .. }), "{error}");
    let error = builder.clone().cubin("sm_").build().unwrap_err();
    assert!(matches!(error, Error::InvalidArch(_)), "{error}");
    let error = builder.cubin("sm_90").device_library(true).build().unwrap_err();
    assert!(matches!(error, Error::CubinOfLibrary), "{error}");
}

/// Builds `kernels` as a build script embeds them. Returns the output.
fn embedded(kernels: &Crate, out: &Path, variables: &[(&str, &OsStr)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inner_embed", "--ignored", "--nocapture"])
        .envs(["TARGET", "HOST", "NUM_JOBS"].map(|name| (name, "1")))
        .env("OUT_DIR", out)
        .env(FOLDER, kernels.root.path())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_cubin_is_embedded_or_an_empty_file() {
    let Some(kernels) = kernels("embedded-kernels", KERNEL) else { return };
    let cubin = |output: &str| {
        let path =
            output.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=WARPHEAP_CUBIN_SM_90="));
        fs::read(path.expect("the variable is set")).unwrap()
    };
    let out = tempfile::tempdir().unwrap();
    let with = embedded(&kernels, out.path(), &[]);
    let bytes = cubin(&with);
    assert_eq!(bytes.is_empty(), with.contains("cargo::warning=no cubins"), "{with}");
    if let Some(cubin) = warpheap_ptx::Cubin::read(&bytes) {
        assert!(cubin.is_of(&read(out.path().join("embedded_kernels.sm_80.ptx"))));
        assert!(with.contains("cargo::rerun-if-changed=") && with.contains("ptxas"), "{with}");
    }
    // Without the tools, unless they are in the toolkit's default place.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_no_linker =
        |folder: &PathBuf| !folder.join(format!("nvlink{}", std::env::consts::EXE_SUFFIX)).exists();
    let path = std::env::join_paths(std::env::split_paths(&path).filter(has_no_linker)).unwrap();
    let nothing = OsStr::new("");
    let none = ["WARPHEAP_PTXAS", "CUDA_HOME", "CUDA_PATH"].map(|name| (name, nothing));
    let without = embedded(&kernels, out.path(), &[&none[..], &[("PATH", &path)]].concat());
    if !Path::new("/usr/local/cuda/bin/nvlink").exists() {
        assert!(without.contains("cargo::warning=no cubins"), "{without}");
        assert!(cubin(&without).is_empty() && without.contains("cargo::rerun-if-env-changed=CUDA_HOME"));
    }
    // A tool that the user names is not replaced by another.
    let named = embedded(&kernels, out.path(), &[("WARPHEAP_PTXAS", OsStr::new("no-such-ptxas"))]);
    assert!(named.contains("WARPHEAP_PTXAS is no-such-ptxas") && cubin(&named).is_empty(), "{named}");
}

#[test]
#[ignore = "run by `a_cubin_is_embedded_or_an_empty_file`, as in a build script"]
fn inner_embed() {
    let kernels = Builder::new(std::env::var_os(FOLDER).unwrap()).target_dir(shared_target_dir());
    kernels.cubin("sm_90").embed(["sm_70", "sm_80"]).unwrap();
}

#[test]
fn one_line_precedes_the_compilers_message() {
    if !has_compiler() {
        return;
    }
    let message = Crate::new("short-kernels", &KERNEL.replace("helper::VALUE", "missing_value")).error();
    let message = message.to_string();
    let mut lines = message.lines();
    assert!(lines.next().is_some_and(|line| line.contains("does not compile")), "{message}");
    assert!(lines.next().is_some_and(|line| line.starts_with("error[E0425]")), "{message}");
    assert!(!message.contains("--crate-name") && !message.contains("Compiling"), "{message}");
}

#[test]
fn an_operation_that_a_gpu_has_no_library_for_is_named() {
    if !has_compiler() {
        return;
    }
    let wide = "(to.cast::<f64>().read() as u128 >> 99) as u32";
    let message = Crate::new("wide-kernels", &KERNEL.replace("helper::VALUE", wide)).error().to_string();
    assert!(
        message.contains("  src/lib.rs:4:") && message.contains(", in `store`: a conversion"),
        "{message}"
    );
    let back = "((to.read() as u128) << 99) as f64 as u32";
    kernels("narrow-kernels", &KERNEL.replace("helper::VALUE", back)).unwrap().builder().build().unwrap();
}

#[test]
fn unusable_ptx_is_rejected_every_time() {
    if !has_compiler() {
        return;
    }
    let no_entry = Crate::new("no-kernels", &KERNEL.replace("\"ptx-kernel\"", "\"C\""));
    assert!(matches!(no_entry.error(), Error::NoEntry(_)));
    assert!(matches!(no_entry.error(), Error::NoEntry(_)), "rejected PTX must not count as up to date");

    let call = "unsafe extern \"C\" { fn missing(to: *mut u32); }\n    unsafe { missing(to) };\n    unsafe { to.write(";
    let unresolved = Crate::new("open-kernels", &KERNEL.replace("unsafe { to.write(", call));
    match unresolved.error() {
        Error::Unresolved { symbols, .. } => assert_eq!(symbols, ["missing"]),
        other => panic!("{other}"),
    }
}

#[test]
fn settings_of_an_outer_build_do_not_reach_the_kernels() {
    if !has_compiler() {
        return;
    }
    let outer = [
        ("RUSTFLAGS", "--no-such-flag"),
        ("CARGO_ENCODED_RUSTFLAGS", "--no-such-flag"),
        ("CARGO_BUILD_TARGET", "no-such-target"),
        ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "no-such-level"),
        ("RUSTC_WRAPPER", "/no/such/wrapper"),
        ("RUSTC_WORKSPACE_WRAPPER", "/no/such/wrapper"),
        ("CARGO_TARGET_DIR", "/no/such/folder"),
        ("RUSTUP_TOOLCHAIN", "no-such-toolchain"),
    ];
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inner_build", "--ignored"])
        .envs(outer)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && message.contains("1 passed"), "{message}");
}

#[test]
#[ignore = "run by `settings_of_an_outer_build_do_not_reach_the_kernels`, in a hostile environment"]
fn inner_build() {
    let ptx = Crate::new("inner-kernels", KERNEL).builder().build().unwrap();
    assert!(read(&ptx.path).contains("1111"));
}

/// The folder of the kernel crate that `inner_debug` builds.
const FOLDER: &str = "WARPHEAP_TEST_KERNEL_FOLDER";

/// Builds `kernels` as a build script does, with these features of `warpheap-device`.
/// Returns the outcome.
fn built_for(kernels: &Crate, device: &Path, features: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inner_debug", "--ignored", "--nocapture"])
        .env("DEP_WARPHEAP_DEVICE_SOURCE", device)
        .env("DEP_WARPHEAP_DEVICE_FEATURES", features)
        .env(FOLDER, kernels.root.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A crate that compares texts, with a `memcmp` of its own that differs by one number.
const OWN_MEMCMP: &str = "#![no_std]
extern crate warpheap_device;
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn compare(a: *const u8, b: *const u8, len: usize, to: *mut bool) {
    let slice = |from| unsafe { core::slice::from_raw_parts(from, len) };
    unsafe { to.write(slice(a) < slice(b)) }
}
#[unsafe(no_mangle)]
pub unsafe extern \"C\" fn memcmp(a: *const u8, _: *const u8, len: usize) -> i32 {
    unsafe { i32::from(*a) + len as i32 + 123_456_789 }
}
";

#[test]
fn a_function_of_the_runtime_can_be_replaced() {
    let Some(kernels) = kernels("memcmp-kernels", OWN_MEMCMP) else { return };
    let device = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu");
    let manifest = read(kernels.root.path().join("Cargo.toml"));
    kernels.write("Cargo.lock", &read(device.join("../Cargo.lock")));
    kernels.write("Cargo.toml", &format!("{manifest}[dependencies.warpheap-device]\npath = {device:?}\n"));
    let ptx = read(kernels.builder().build().unwrap().path);
    assert!(ptx.contains("123456789"), "{ptx}");
    let definitions = ptx.lines().filter(|line| line.contains(".func") && line.contains(" memcmp("));
    assert!(
        definitions.count() <= 1 && !ptx.contains(".weak .func  (.param .b32 func_retval0) memcmp"),
        "{ptx}"
    );
}

#[test]
fn debug_in_the_kernel_crate_or_the_program_alone_is_an_error() {
    let Some(kernels) = kernels("debug-kernels", KERNEL) else { return };
    let device = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu");
    let manifest = read(kernels.root.path().join("Cargo.toml"));
    // The versions that cargo has fetched for the workspace.
    kernels.write("Cargo.lock", &read(device.join("../Cargo.lock")));
    let depend = |features: &[&str]| {
        let dependency = "[dependencies.warpheap-device]\ndefault-features = false\n";
        kernels.write(
            "Cargo.toml",
            &format!("{manifest}{dependency}path = {device:?}\nfeatures = {features:?}\n"),
        );
    };
    let check = |program, outcome: &str| {
        let text = built_for(&kernels, &device, program);
        assert!(text.contains(outcome), "{program:?}, {outcome:?}: {text}");
    };
    depend(&["debug"]);
    check("debug", "built");
    for _ in 0..2 {
        check("panic-handler", "in the kernel crate `debug-kernels` and not in the program");
    }
    check("bytemuck,debug", "built");
    depend(&[]);
    check("debug", "in the program and not in the kernel crate `debug-kernels`");
    check("", "built");
}

#[test]
#[ignore = "run by `debug_in_the_kernel_crate_or_the_program_alone_is_an_error`, as in a build script"]
fn inner_debug() {
    let kernels = Builder::new(std::env::var_os(FOLDER).unwrap());
    match kernels.target_dir(shared_target_dir()).build() {
        Ok(ptx) => println!("built {}", ptx.path.display()),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn a_folder_without_a_crate_is_named() {
    if !has_compiler() {
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let message = Builder::new(empty.path()).build().unwrap_err().to_string();
    assert!(
        message.contains("no kernel crate in") && message.contains(empty.path().to_str().unwrap()),
        "{message}"
    );
}
