//! Texts of files, for terminals and pictures.

use serde_json::Value;

/// Whether a terminal would obey the character, or XML does not allow it.
fn is_unprintable(one: char) -> bool {
    (one.is_control() && !['\n', '\t'].contains(&one)) || ['\u{fffe}', '\u{ffff}'].contains(&one)
}

/// The text, without unprintable characters.
pub fn printable(text: &str) -> String {
    text.replace(is_unprintable, "\u{fffd}")
}

/// Replaces unprintable characters in all texts of a file that was read, and in the names of its
/// fields.
pub fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(is_unprintable) => *text = printable(text),
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            fields.values_mut().for_each(make_printable);
            if fields.keys().any(|name| name.contains(is_unprintable)) {
                let named = std::mem::take(fields).into_iter();
                *fields = named.map(|(name, value)| (printable(&name), value)).collect();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unprintable_characters_are_replaced_everywhere() {
        let mut value = json!([{"a\u{1b}": ["\u{0}b", "\u{85}\u{fffe}"], "c": "d\n\t\u{202e}é"}, 1, null]);
        make_printable(&mut value);
        let bad = "\u{fffd}";
        let expected = json!([{format!("a{bad}"): [format!("{bad}b"), format!("{bad}{bad}")], "c": "d\n\t\u{202e}é"}, 1, null]);
        assert_eq!(value, expected);
    }
}
