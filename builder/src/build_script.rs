//! Specifics of a `build.rs`: where the nested cargo builds, and when the outer cargo must rerun
//! the script.

use crate::cargo::Package;
use crate::compiler::Rejected;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Whether cargo runs this process as a `build.rs`.
pub(crate) fn in_build_script() -> bool {
    ["OUT_DIR", "TARGET", "HOST", "NUM_JOBS"].iter().all(|name| std::env::var_os(name).is_some())
}

/// A folder in the outer cargo's target folder, so that debug, release and test builds share one
/// compiled core; otherwise in that of the kernel crate. Each workspace has its own: cargo
/// distinguishes packages by their path within the workspace, so two workspaces in one folder would
/// use each other's crates.
pub(crate) fn shared_target_dir(package: &Package) -> PathBuf {
    base_dir(package).join(workspace_tag(&package.workspace_root))
}

/// The folder for modules of all workspaces, which differ by name and version.
pub(crate) fn modules_target_dir(owner: &Package) -> PathBuf {
    base_dir(owner).join("modules")
}

fn base_dir(package: &Package) -> PathBuf {
    let out = std::env::var_os("OUT_DIR").filter(|_| in_build_script()).map(PathBuf::from);
    let base = out.as_deref().and_then(|out| outer_target_dir(out, package)).or(out.as_deref());
    base.unwrap_or(&package.target_dir).join("warpheap-build")
}

/// `kernels-8f14e45fceea167a` for a workspace in a folder `kernels`.
fn workspace_tag(root: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}-{:016x}", hasher.finish())
}

/// Files that cargo puts into a target folder: the first one only into a folder that cargo created.
const MARKS: [&str; 2] = ["CACHEDIR.TAG", ".rustc_info.json"];

/// The target folder that contains `out`: one with cargo's marks, otherwise that of the kernel
/// crate.
fn outer_target_dir<'a>(out: &'a Path, package: &'a Package) -> Option<&'a Path> {
    // target/[triple/]profile/build/package/out
    let is_marked = |folder: &&Path| MARKS.iter().any(|mark| folder.join(mark).is_file());
    let marked = out.ancestors().take(6).find(is_marked);
    marked.or_else(|| Some(package.target_dir.as_path()).filter(|folder| out.starts_with(folder)))
}

/// Shows a warning to the user: through cargo in a build script.
pub(crate) fn warn(text: &str) {
    match in_build_script() {
        true => println!("cargo::warning={text}"),
        false => eprintln!("warning: {text}"),
    }
}

/// Makes cargo rerun this `build.rs` when a compiler may have been installed.
pub(crate) fn watch_for_compiler(rejected: &[Rejected]) {
    if !in_build_script() {
        return;
    }
    println!("cargo::rerun-if-env-changed=PATH");
    let components =
        rejected.iter().filter_map(|one| Some(one.sysroot.as_ref()?.join("lib/rustlib/components")));
    let rustup = std::env::var_os("RUSTUP_HOME").map(|home| PathBuf::from(home).join("settings.toml"));
    let watched = components.chain(rustup).chain(["/var/lib/dpkg/status".into()]);
    for file in watched.filter(|file| file.is_file()) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn workspaces_of_one_name_keep_apart() {
        assert_eq!(workspace_tag(Path::new("/a/kernels")), workspace_tag(Path::new("/a/kernels")));
        assert_ne!(workspace_tag(Path::new("/a/kernels")), workspace_tag(Path::new("/b/kernels")));
    }

    #[test]
    fn profiles_share_the_folder_that_cargo_marks_or_that_is_the_kernels_own() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("target");
        let out = target.join("debug/build/host-0123/out");
        fs::create_dir_all(&out).unwrap();
        let package = |target_dir: PathBuf| Package {
            name: "kernels".into(),
            library: Some("kernels".into()),
            edition: "2024".into(),
            manifest: root.path().join("kernels/Cargo.toml"),
            workspace_root: root.path().into(),
            target_dir,
        };
        assert_eq!(outer_target_dir(&out, &package(target.clone())), Some(target.as_path()));
        assert_eq!(outer_target_dir(&out, &package("/elsewhere/target".into())), None);
        for mark in MARKS {
            fs::write(target.join(mark), "").unwrap();
            assert_eq!(outer_target_dir(&out, &package("/elsewhere/target".into())), Some(target.as_path()));
            fs::remove_file(target.join(mark)).unwrap();
        }
    }
}
