//! Python reads a snapshot, and the opcodes of the pickle are those of the viewer.

use super::{Files, LOG};
use serde_json::Value;
use std::process::Command;

/// The opcodes that the viewer's unpickler knows, by their names in Python's `pickletools`.
const OPCODES: &str = "APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT EMPTY_LIST \
    EMPTY_TUPLE FRAME LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM SETITEMS \
    SHORT_BINUNICODE STOP TUPLE TUPLE1 TUPLE2 TUPLE3";

const UNPICKLE: &str = "\
import json, pickle, pickletools, sys
data = open(sys.argv[1], 'rb').read()
unknown = {op.name for op, _, _ in pickletools.genops(data)} - set(sys.argv[2].split())
wide = [arg for op, arg, _ in pickletools.genops(data) if op.name == 'LONG1' and arg >= 2**63]
json.dump({'snapshot': pickle.loads(data), 'unknown': sorted(unknown), 'wide': wide}, sys.stdout)";

#[test]
fn python_reads_the_snapshot() {
    let files = Files::new(LOG);
    let snapshot = files.pytorch("");
    let path = files.folder.path().join("export");
    let python = Command::new("python3").args(["-c", UNPICKLE]).arg(&path).arg(OPCODES).output();
    let Ok(output) = python else { return eprintln!("skipped: there is no python3") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(read["snapshot"], snapshot);
    assert_eq!((&read["unknown"], &read["wide"]), (&Value::Array(vec![]), &Value::Array(vec![])));
}
