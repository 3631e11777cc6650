use super::*;
use std::fs::read_to_string;
use tempfile::{TempDir, tempdir};

fn names(folder: &TempDir) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

#[test]
fn results_replace_a_file_and_leave_no_other_file() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("results.json");
    fs::write(&path, "old").unwrap();
    write(&path, &vec![1, 2]).unwrap();
    assert_eq!(read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
    assert_eq!(names(&folder), 1);
}

#[test]
fn a_failure_keeps_the_old_file() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("results.json");
    fs::write(&path, "old").unwrap();
    let failed = write_with(&path, |file| {
        file.write_all(b"a part")?;
        Err(io::Error::other("no more"))
    });
    assert!(failed.unwrap_err().to_string().ends_with("results.json: no more"));
    assert_eq!((read_to_string(&path).unwrap().as_str(), names(&folder)), ("old", 1));
}

#[test]
fn a_missing_folder_and_a_folder_are_different_errors() {
    let folder = tempdir().unwrap();
    let missing = check(&folder.path().join("no/results.json")).unwrap_err();
    assert!(matches!(missing, WriteError::NoParent { .. }), "{missing}");
    for path in [folder.path().to_owned(), folder.path().join("results.json/")] {
        assert!(matches!(check(&path), Err(WriteError::Folder(_))), "{}", path.display());
    }
    assert!(check(&folder.path().join("results.json")).is_ok());
    assert_eq!(names(&folder), 0, "a check leaves nothing");
    let long = check(&folder.path().join("x".repeat(300))).unwrap_err();
    assert!(matches!(long, WriteError::Io { .. }), "{long}");
}

#[test]
fn two_paths_of_one_file_are_the_same() {
    let folder = tempdir().unwrap();
    let [a, b, none] = ["a", "b", "none"].map(|name| folder.path().join(name));
    fs::write(&a, "").unwrap();
    fs::write(&b, "").unwrap();
    let detour = |name: &str| folder.path().join(".").join(name);
    assert!(is_same(&a, &detour("a")) && is_same(&none, &detour("none")));
    assert!(!is_same(&a, &b) && !is_same(&a, &none));
}

#[cfg(unix)]
mod on_unix {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn links_without_a_target_are_errors() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        for (name, target) in [("relative", "inner/file"), ("chain", "relative"), ("astray", "no/file")] {
            symlink(target, at(name)).unwrap();
        }
        assert!(is_same(&at("chain"), &at("inner/file")) && check(&at("chain")).is_ok());
        symlink(at("loop"), at("loop")).unwrap();
        assert!(check(&at("loop")).unwrap_err().to_string().contains("too many symbolic links"));
        assert!(matches!(check(&at("astray")), Err(WriteError::NoParent { .. })));
        symlink("inner", at("to-a-folder")).unwrap();
        assert!(matches!(check(&at("to-a-folder")), Err(WriteError::Folder(_))));
    }

    #[test]
    fn a_file_keeps_its_permissions_and_its_names() {
        let folder = tempdir().unwrap();
        let [path, other] = ["file", "other"].map(|name| folder.path().join(name));
        fs::write(&path, "old, and longer than the new text").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = path.metadata().unwrap().ino();
        write_with(&path, |file| file.write_all(b"new")).unwrap();
        let replaced = path.metadata().unwrap();
        assert_eq!(replaced.mode() & 0o777, 0o640);
        assert_ne!(replaced.ino(), before, "it was replaced in one step");
        fs::hard_link(&path, &other).unwrap();
        assert!(is_same(&path, &other));
        write_with(&path, |file| file.write_all(b"3rd")).unwrap();
        assert_eq!([&path, &other].map(|path| read_to_string(path).unwrap()), ["3rd", "3rd"]);
    }
}
