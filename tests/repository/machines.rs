//! No tracked file contains paths of one machine or package hosts of one network.

use crate::files::tracked;

/// Parts of such names, split so that this file does not contain them.
const FOREIGN: [&str; 5] = [
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("arti", "factory"),
];

fn foreign(text: &str) -> Vec<&str> {
    text.lines().filter(|line| FOREIGN.iter().any(|part| line.contains(part))).collect()
}

#[test]
fn no_tracked_file_names_one_machine() {
    for (name, text) in tracked().unwrap_or_default() {
        assert_eq!(foreign(&text), [""; 0], "in {name}");
    }
}

#[test]
fn a_planted_path_is_reported() {
    let planted = format!("fine\nlet path = \"{}user/x\";\n/usr/bin/rustc\n", FOREIGN[1]);
    assert_eq!(foreign(&planted).len(), 1);
}
