//! A case: a command line, and the files that it names.

use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// In `line`, `{0}` stands for the first of `files`, `{new 0}` for a path without a file and
/// `{folder}` for a folder.
#[derive(Clone)]
pub struct Case {
    pub line: Vec<Vec<u8>>,
    pub files: Vec<Vec<u8>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

impl Case {
    pub fn new(line: Vec<Vec<u8>>, files: Vec<Vec<u8>>) -> Case {
        Case { line, files }
    }

    /// Writes the files to a folder, and returns the words of the line without the program.
    pub fn prepare(&self, folder: &Path) -> Vec<OsString> {
        for (number, bytes) in self.files.iter().enumerate() {
            std::fs::write(folder.join(number.to_string()), bytes).expect("a file");
        }
        let word = |word: &Vec<u8>| match word.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")) {
            Some(b"folder") => folder.into(),
            Some(name) if !name.contains(&b'/') => folder.join(OsStr::from_bytes(name)).into(),
            _ => OsString::from_vec(word.clone()),
        };
        self.line.iter().map(word).collect()
    }

    /// The form of the corpus. A character stands for a byte.
    pub fn to_json(&self) -> String {
        let text = |bytes: &Vec<u8>| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
        let [line, files] = [&self.line, &self.files].map(|all| all.iter().map(text).collect::<Vec<_>>());
        serde_json::to_string_pretty(&json!({ "line": line, "files": files })).expect("texts")
    }

    pub fn from_json(text: &str) -> Case {
        let value: Value = serde_json::from_str(text).expect("a case is JSON");
        let bytes = |text: &Value| -> Vec<u8> {
            let chars = text.as_str().expect("a text").chars();
            chars.map(|one| u8::try_from(one).expect("a character for each byte")).collect()
        };
        let all = |name: &str| value[name].as_array().expect("texts").iter().map(bytes).collect();
        Case { line: all("line"), files: all("files") }
    }
}

#[test]
fn a_case_is_read_as_it_was_written() {
    let case = Case::new(vec![b"map".to_vec(), vec![0xff, 0]], vec![(0..=255).collect()]);
    let again = Case::from_json(&case.to_json());
    assert_eq!((again.line, again.files), (case.line, case.files));
}
