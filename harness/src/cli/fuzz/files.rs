//! Damaged files: results, maps and logs of the corpus, edited as values and then as text.

use super::corpus;
use super::values::{NUMBERS, VALID, text};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A change at a place of a file.
#[derive(Clone, Debug)]
enum Edit {
    Remove,
    /// Repeats an entry this many times.
    Repeat(usize),
    /// Puts this text in place of a value, as it is.
    Raw(String),
    /// Puts this number, as it is, in place of the next number.
    Number(&'static str),
    /// Puts a text in place of the next text.
    Text(String),
    /// Puts a value into this many arrays.
    Nest(usize),
    /// Puts a value where another one is.
    CopyFrom(Index),
}

/// A change of the text.
#[derive(Clone, Debug)]
enum Cut {
    Truncate(Index),
    Insert(Index, Vec<u8>),
    Change(Index, u8),
}

const VALUES: &[&str] = &["null", "true", "[]", "{}", "\"\"", "[[]]", "{\"a\":1}"];

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        1 => Just(Edit::Remove),
        3 => select(&[2_usize, 3, 40][..]).prop_map(Edit::Repeat),
        9 => select(VALID).prop_map(Edit::Number),
        1 => select(NUMBERS).prop_map(|number| Edit::Raw(number.into())),
        1 => select(VALUES).prop_map(|value| Edit::Raw(value.into())),
        4 => text().prop_map(Edit::Text),
        1 => select(&[1_usize, 130, 3000][..]).prop_map(Edit::Nest),
        2 => any::<Index>().prop_map(Edit::CopyFrom),
    ]
}

/// Bytes that end values, or are no UTF-8.
const PIECES: &[&[u8]] =
    &[b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0", b"\"", b",", b"\n", b"\r", b"}", b"[[[[", b"\xef\xbb\xbf"];

fn cut() -> impl Strategy<Value = Cut> {
    let bytes = prop_oneof![vec(any::<u8>(), 1..4), select(PIECES).prop_map(<[u8]>::to_vec),];
    prop_oneof![
        any::<Index>().prop_map(Cut::Truncate),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Cut::Insert(at, bytes)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Cut::Change(at, byte)),
    ]
}

/// Mostly one change: of many, one is rejected and hides the others.
fn edits() -> impl Strategy<Value = Vec<(Index, Edit)>> {
    prop_oneof![1 => Just(0), 6 => Just(1), 3 => Just(2), 1 => Just(8)]
        .prop_flat_map(|count| vec((any::<Index>(), edit()), count))
}

fn cuts() -> impl Strategy<Value = Option<Cut>> {
    prop_oneof![7 => Just(None), 1 => cut().prop_map(Some)]
}

fn seeds(names: &[&str]) -> Vec<String> {
    let path = |name: &&str| -> PathBuf { corpus("seeds").join(name) };
    names.iter().map(|name| std::fs::read_to_string(path(name)).expect("a seed")).collect()
}

fn values(names: &[&str]) -> Vec<Value> {
    seeds(names).iter().map(|seed| serde_json::from_str(seed).expect("JSON")).collect()
}

/// Results of runs.
pub fn results() -> impl Strategy<Value = Vec<u8>> {
    static SEEDS: LazyLock<Vec<Value>> =
        LazyLock::new(|| values(&["bench.json", "suite.json", "stress.json", "pools.json"]));
    json(&SEEDS)
}

/// Results of which most are whole.
pub fn other_results() -> impl Strategy<Value = Vec<u8>> {
    static SEEDS: LazyLock<Vec<String>> =
        LazyLock::new(|| seeds(&["bench.json", "suite.json", "stress.json", "pools.json"]));
    prop_oneof![3 => select(&SEEDS[..]).prop_map(String::into_bytes), 1 => results()]
}

/// Maps of heaps.
pub fn maps() -> impl Strategy<Value = Vec<u8>> {
    static SEEDS: LazyLock<Vec<Value>> = LazyLock::new(|| values(&["map.json", "maps.json"]));
    json(&SEEDS)
}

fn json(seeds: &'static [Value]) -> impl Strategy<Value = Vec<u8>> {
    (select(seeds), edits(), cuts()).prop_map(|(value, edits, cut)| {
        let text = edits.into_iter().fold(Text { value, raws: Vec::new() }, Text::edited).print();
        damaged(text.into_bytes(), cut)
    })
}

/// Logs of allocations.
pub fn logs() -> impl Strategy<Value = Vec<u8>> {
    static SEEDS: LazyLock<Vec<String>> = LazyLock::new(|| seeds(&["log.csv", "rmm.csv"]));
    (select(&SEEDS[..]), edits(), cuts()).prop_map(|(seed, edits, cut)| {
        let mut rows: Vec<Vec<String>> =
            seed.lines().map(|row| row.split(',').map(String::from).collect()).collect();
        edits.into_iter().for_each(|(at, edit)| edit_rows(&mut rows, at, edit));
        let rows: Vec<_> = rows.iter().map(|row| row.join(",")).collect();
        damaged((rows.join("\n") + "\n").into_bytes(), cut)
    })
}

fn edit_rows(rows: &mut Vec<Vec<String>>, at: Index, edit: Edit) {
    let cells: usize = rows.iter().map(Vec::len).sum();
    if cells == 0 {
        return;
    }
    let place = |at: Index| {
        let mut left = at.index(cells);
        let row = rows.iter().position(|row| {
            left < row.len() || {
                left -= row.len();
                false
            }
        });
        (row.expect("below the number of cells"), left)
    };
    let (row, cell) = place(at);
    match edit {
        Edit::Remove if cell == 0 => drop(rows.remove(row)),
        Edit::Remove => drop(rows[row].remove(cell)),
        Edit::Repeat(times) => {
            let copies = vec![rows[row].clone(); times];
            rows.splice(row..row, copies).for_each(drop);
        }
        Edit::Raw(text) | Edit::Text(text) => rows[row][cell] = text,
        Edit::Number(number) => rows[row][cell] = number.into(),
        Edit::Nest(times) => rows[row][cell] = "\"".repeat(times),
        Edit::CopyFrom(from) => {
            let (from_row, from_cell) = place(from);
            rows[row][cell] = rows[from_row][from_cell].clone();
        }
    }
}

/// A value in which some texts stand for raw ones.
struct Text {
    value: Value,
    raws: Vec<String>,
}

impl Text {
    fn edited(mut self, (at, edit): (Index, Edit)) -> Text {
        let count = nodes(&self.value);
        let mut copied = None;
        if let Edit::CopyFrom(from) = edit {
            visit(&mut self.value, &mut from.index(count), &mut |value| {
                copied = Some(value.clone());
                true
            });
        }
        let raws = &mut self.raws;
        let mut raw = |text: String| {
            raws.push(text);
            Value::String(format!("\u{1}{}\u{1}", raws.len() - 1))
        };
        visit(&mut self.value, &mut at.index(count), &mut |value| {
            *value = match &edit {
                Edit::Number(_) if !value.is_number() => return false,
                Edit::Text(_) if !value.is_string() => return false,
                Edit::Number(number) => raw((*number).into()),
                Edit::Raw(text) => raw(text.clone()),
                Edit::Text(text) => Value::String(text.clone()),
                Edit::Nest(times) => raw("[".repeat(*times) + &"]".repeat(*times)),
                Edit::Remove => Value::from(REMOVED),
                Edit::Repeat(times) => repeated(value, *times),
                Edit::CopyFrom(_) => copied.clone().unwrap_or_default(),
            };
            true
        });
        prune(&mut self.value);
        self
    }

    fn print(&self) -> String {
        let text = self.value.to_string();
        let raws = self.raws.iter().enumerate();
        raws.fold(text, |text, (number, raw)| text.replace(&format!("\"\\u0001{number}\\u0001\""), raw))
    }
}

/// The values of an array, or a text, several times.
fn repeated(value: &Value, times: usize) -> Value {
    match value {
        Value::Array(values) => values.iter().cycle().take(values.len() * times).cloned().collect(),
        Value::String(text) => Value::String(text.repeat(times)),
        other => other.clone(),
    }
}

/// Stands for a value that is removed from its array or object.
const REMOVED: &str = "\u{1}removed";

fn prune(value: &mut Value) {
    match value {
        Value::Array(values) => {
            values.retain(|value| value != REMOVED);
            values.iter_mut().for_each(prune);
        }
        Value::Object(fields) => {
            fields.retain(|_, value| value != REMOVED);
            fields.values_mut().for_each(prune);
        }
        _ => {}
    }
}

/// The number of values in a value, with itself.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(nodes).sum(),
        Value::Object(fields) => fields.values().map(nodes).sum::<usize>(),
        _ => 0,
    }
}

/// Calls `then` for the value number `left`, from 0, in the order of the text, and for those after
/// it until `then` returns true.
fn visit(value: &mut Value, left: &mut usize, then: &mut dyn FnMut(&mut Value) -> bool) -> bool {
    if *left > 0 {
        *left -= 1;
    } else if then(value) {
        return true;
    }
    match value {
        Value::Array(values) => values.iter_mut().any(|value| visit(value, left, then)),
        Value::Object(fields) => fields.values_mut().any(|value| visit(value, left, then)),
        _ => false,
    }
}

fn damaged(mut bytes: Vec<u8>, cut: Option<Cut>) -> Vec<u8> {
    let end = bytes.len();
    match cut {
        None => {}
        Some(Cut::Truncate(at)) => bytes.truncate(at.index(end + 1)),
        Some(Cut::Insert(at, new)) => {
            let at = at.index(end + 1);
            bytes.splice(at..at, new).for_each(drop);
        }
        Some(Cut::Change(at, byte)) if end > 0 => bytes[at.index(end)] = byte,
        Some(Cut::Change(..)) => {}
    }
    bytes
}
