//! A kernel module inside a host crate, compiled as a separate crate.
//!
//! The module is compiled twice: by the host crate, for the CPU, and here, for the GPU. The GPU
//! build needs a separate crate that depends on `warpheap-device` and has the module at its root
//! under the same name. Cargo tells a build script where the source of `warpheap-device` is,
//! wherever cargo got it from.

use crate::cargo::{self, Package};
use crate::error::{Error, io};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Variables that `warpheap-device` sets for the build scripts of dependent crates: its folder,
/// that of `warpheap-machine`, and the enabled ones of those features that kernels and host must
/// agree on.
const SOURCE: &str = "DEP_WARPHEAP_DEVICE_SOURCE";
const MACHINE: &str = "DEP_WARPHEAP_DEVICE_MACHINE";
const FEATURES: &str = "DEP_WARPHEAP_DEVICE_FEATURES";

/// `warpheap-device`, as a dependency of a module's crate.
#[derive(Clone, Debug, Hash)]
pub(crate) struct DeviceCrate {
    pub folder: PathBuf,
    /// The folder of `warpheap-machine`, if the crate in `folder` is from a package. In a
    /// repository, the manifest names the folder.
    pub machine: Option<PathBuf>,
    pub features: Vec<String>,
}

impl DeviceCrate {
    /// The device crate that cargo names to this build script.
    pub fn of_build_script() -> Result<DeviceCrate, Error> {
        let folder: PathBuf = std::env::var_os(SOURCE).ok_or(Error::NoDeviceCrate)?.into();
        let features = std::env::var(FEATURES).unwrap_or_default();
        let features = features.split(',').filter(|name| !name.is_empty()).map(String::from).collect();
        Ok(DeviceCrate::new(folder, features))
    }

    /// The crate in `folder`, with the `warpheap-machine` that cargo names to this build script.
    pub fn new(folder: PathBuf, features: Vec<String>) -> DeviceCrate {
        let machine = std::env::var_os(MACHINE).map(PathBuf::from).filter(|_| is_packaged(&folder));
        DeviceCrate { folder, machine, features }
    }

    /// Whether the program has the feature `debug`. `None` if cargo does not pass it to this build
    /// script.
    pub fn debug_of_build_script() -> Option<bool> {
        DeviceCrate::of_build_script().ok().map(|device| has_debug(&device.features))
    }
}

/// Whether the `warpheap-device` in `folder` is from a package: cargo has then written its
/// manifest, in which dependencies are tables without paths.
fn is_packaged(folder: &Path) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml"));
    manifest.is_ok_and(|manifest| manifest.contains("\n[dependencies.warpheap-machine]\n"))
}

/// The library of `warpheap-device`.
const LIBRARY: &str = "warpheap_device";

/// Whether the feature is enabled that makes handles longer.
fn has_debug(features: &[String]) -> bool {
    features.iter().any(|feature| feature == "debug")
}

/// Compares the feature `debug` of the program with that of the kernel crate `name`. `messages` is
/// the output of the kernel crate's build.
pub(crate) fn check_debug(name: &str, program: bool, messages: &str) -> Result<(), Error> {
    let Some(features) = cargo::features(messages, LIBRARY) else { return Ok(()) };
    let kernels = has_debug(&features);
    if kernels == program { Ok(()) } else { Err(Error::DebugMismatch { name: name.into(), kernels }) }
}

/// The file of the module at `path`, a file or a folder with `mod.rs`.
pub(crate) fn file(path: &Path) -> Result<PathBuf, Error> {
    let file = if path.is_dir() { path.join("mod.rs") } else { path.into() };
    file.canonicalize().ok().filter(|file| file.is_file()).ok_or_else(|| Error::NoModule(path.into()))
}

/// The folder of the crate that `file` is in.
pub(crate) fn owner(file: &Path) -> Result<&Path, Error> {
    let folders = file.ancestors().skip(1);
    let found = folders.into_iter().find(|folder| folder.join("Cargo.toml").is_file());
    found.ok_or_else(|| Error::NoKernelCrate(file.parent().unwrap_or(file).into()))
}

/// The name of the module in `file` in the host crate.
fn name(file: &Path) -> String {
    let named = if file.ends_with("mod.rs") { file.parent().unwrap_or(file) } else { file };
    named.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes the crate that compiles the module in `file`, which belongs to the crate `owner`, below
/// `target_dir`.
pub(crate) fn write(
    file: &Path,
    owner: &Package,
    device: &DeviceCrate,
    target_dir: &Path,
) -> Result<Package, Error> {
    let module = name(file);
    let package = format!("{}-{module}", owner.name);
    let source = source(file, &module);
    let mut hasher = DefaultHasher::new();
    (&package, &owner.edition, device, &source).hash(&mut hasher);
    let version = format!("0.0.0-h{:016x}", hasher.finish());
    let manifest = manifest(&package, &version, owner, device);
    let folder = target_dir.join("crates").join(format!("{package}-{version}"));
    fs::create_dir_all(&folder).map_err(io("create", &folder))?;
    for (name, text) in [("Cargo.toml", &manifest), ("lib.rs", &source)] {
        let path = folder.join(name);
        // Write only if the text differs: cargo would recompile a newer file.
        if fs::read_to_string(&path).ok().as_ref() != Some(text) {
            fs::write(&path, text).map_err(io("write", &path))?;
        }
    }
    Ok(Package {
        library: Some(package.replace('-', "_")),
        name: package,
        edition: owner.edition.clone(),
        manifest: folder.join("Cargo.toml"),
        workspace_root: folder,
        target_dir: target_dir.into(),
    })
}

/// The manifest. Crates of modules share a target folder, in which cargo distinguishes them by name
/// and version. The patch lets the kernels have the `warpheap-machine` of the host, also where the
/// host's workspace patches it.
fn manifest(package: &str, version: &str, owner: &Package, device: &DeviceCrate) -> String {
    let Package { edition, .. } = owner;
    let DeviceCrate { folder, machine, features } = device;
    let patch = machine.as_ref().map_or(String::new(), |machine| {
        format!("\n[patch.crates-io.warpheap-machine]\npath = {machine:?}\n")
    });
    format!(
        "[package]\nname = {package:?}\nversion = {version:?}\nedition = {edition:?}\n\n[lib]\npath = \"lib.rs\"\n\n\
         [dependencies.warpheap-device]\npath = {folder:?}\ndefault-features = false\nfeatures = {features:?}\n\n\
         [workspace]\n{patch}"
    )
}

fn source(file: &Path, module: &str) -> String {
    format!("#![no_std]\n\n#[path = {file:?}]\npub mod {module};\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_the_name_of_its_file_or_folder() {
        for (file, module) in [("/a/host/kernels/mod.rs", "kernels"), ("/a/src/gpu.rs", "gpu")] {
            assert_eq!(name(Path::new(file)), module);
        }
    }

    #[test]
    fn a_package_has_no_paths_of_dependencies() {
        let root = tempfile::tempdir().unwrap();
        let is_packaged = |manifest: &str| {
            fs::write(root.path().join("Cargo.toml"), manifest).unwrap();
            super::is_packaged(root.path())
        };
        assert!(is_packaged("[lib]\n\n[dependencies.warpheap-machine]\nversion = \"0.1.0\"\n"));
        assert!(!is_packaged(
            &fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/Cargo.toml")).unwrap()
        ));
        assert!(!super::is_packaged(Path::new("/none")));
    }

    #[test]
    fn debug_is_enabled_in_kernels_and_program_or_in_neither() {
        let messages = |features: &str| {
            format!(
                "{{\"target\":{{\"kind\":[\"lib\"],\"name\":\"warpheap_device\"}},\"features\":[{features}]}}"
            )
        };
        let (with, without) = (messages("\"debug\""), messages("\"panic-handler\""));
        check_debug("k", true, &with).unwrap();
        check_debug("k", false, &without).unwrap();
        check_debug("k", true, "").unwrap();
        let message = |program, messages: &str| check_debug("k", program, messages).unwrap_err().to_string();
        let (kernels, program) = (message(false, &with), message(true, &without));
        assert!(kernels.contains("enabled in the kernel crate `k` and not in the program"), "{kernels}");
        assert!(program.contains("enabled in the program and not in the kernel crate `k`"), "{program}");
    }

    #[test]
    fn a_folder_is_its_mod_file_and_belongs_to_the_nearest_crate() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| root.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(place("host/src/kernels")).unwrap();
        for name in ["Cargo.toml", "host/Cargo.toml", "host/src/kernels/mod.rs"] {
            fs::write(place(name), "").unwrap();
        }
        let found = file(&place("host/src/kernels")).unwrap();
        assert_eq!(found, place("host/src/kernels/mod.rs"));
        assert_eq!(file(&found).unwrap(), found);
        assert_eq!(owner(&found).unwrap(), place("host"));
        assert!(matches!(file(&place("host/src/none")), Err(Error::NoModule(_))));
    }

    #[test]
    fn the_crate_is_written_once_and_apart_for_other_features() {
        let root = tempfile::tempdir().unwrap();
        let owner = Package {
            name: "my-host".into(),
            library: None,
            edition: "2024".into(),
            manifest: "/my/Cargo.toml".into(),
            workspace_root: "/my".into(),
            target_dir: root.path().into(),
        };
        let write = |features: &[&str]| {
            let features = features.iter().copied().map(String::from).collect();
            let (folder, machine) = ("/device".into(), Some("/machine".into()));
            let device = DeviceCrate { folder, machine, features };
            super::write(Path::new("/my/src/kernels/mod.rs"), &owner, &device, root.path()).unwrap()
        };
        let package = write(&["debug"]);
        assert_eq!(package.library.as_deref(), Some("my_host_kernels"));
        let text = |name: &str| fs::read_to_string(package.workspace_root.join(name)).unwrap();
        assert!(
            text("Cargo.toml")
                .contains("path = \"/device\"\ndefault-features = false\nfeatures = [\"debug\"]\n")
        );
        assert!(
            text("Cargo.toml")
                .ends_with("[workspace]\n\n[patch.crates-io.warpheap-machine]\npath = \"/machine\"\n")
        );
        assert!(text("lib.rs").ends_with("#[path = \"/my/src/kernels/mod.rs\"]\npub mod kernels;\n"));
        let written = || fs::metadata(&package.manifest).unwrap().modified().unwrap();
        let before = written();
        assert_eq!(write(&["debug"]), package);
        assert_eq!(written(), before);
        assert_ne!(write(&[]).manifest, package.manifest);
    }
}
