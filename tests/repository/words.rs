//! Comments and prose end at column 100, and are in the terms of the field: threads, blocks and
//! streams are no persons, memory is freed, and allocations fail.

use crate::files::tracked;

const COLUMNS: usize = 100;

/// Words for persons, and how many of them the comments of all Rust files may have: some are about
/// people.
const PERSONS: [&str; 9] =
    ["who", "whom", "whoever", "nobody", "no one", "someone", "anyone", "somebody", "anybody"];
const MOST_PERSONS: usize = 20;

/// Phrases that are always wrong.
const BANNED: [&str; 11] = [
    "given back",
    "give back",
    "gives back",
    "gave back",
    "giving back",
    "to be had",
    "no one has had",
    "how many-th",
    "how-manieth",
    "without anyone's leave",
    "owes a span",
];

/// A file that is not checked: the page of results, which `results` generates.
const EXEMPT: [&str; 1] = ["docs/results.md"];

/// `text` in lower case without the code between backticks.
fn plain(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase()
}

/// How often `phrase` occurs in `text`, as whole words.
fn count(text: &str, phrase: &str) -> usize {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let occurs = text.match_indices(phrase).filter(|(at, _)| {
        !is_letter(text[..*at].chars().next_back()) && !is_letter(text[at + phrase.len()..].chars().next())
    });
    occurs.count()
}

fn count_all(line: &Line, phrases: &[&str]) -> usize {
    let text = plain(line.text);
    phrases.iter().map(|phrase| count(&text, phrase)).sum()
}

/// Whether a line is too long. A link, or a table in a comment, cannot be broken.
fn is_long(line: &Line) -> bool {
    let text = line.text.trim_start_matches(['/', '!', '#', ' ', '-', '>']);
    let is_link = text.contains("](") || text.contains("http") || text.starts_with('[');
    let cannot_break = text.starts_with('|') || is_link && text.split(' ').count() <= 2;
    line.columns.is_some_and(|columns| columns > COLUMNS) && !cannot_break
}

/// A line of text in its file.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    number: usize,
    /// The text without the code before it.
    text: &'a str,
    /// Columns of the whole line. `None` for a comment after code, which rustfmt limits.
    columns: Option<usize>,
}

/// The lines of the file `name` that people read: the comments of Rust, TOML and shell files, the
/// prose of Markdown files, nothing of other files.
fn prose<'a>(name: &str, text: &'a str) -> Vec<Line<'a>> {
    match name.rsplit_once('.') {
        Some((_, "rs")) => comments(text),
        Some((_, "md")) => markdown(text),
        Some((_, "toml" | "sh" | "ci/run")) => hash_comments(text),
        _ => Vec::new(),
    }
}

fn comments(text: &str) -> Vec<Line<'_>> {
    let comment = |(number, line)| comment(number, line);
    (1..).zip(text.lines()).filter_map(comment).collect()
}

/// The comment of a line. A `//` in a string starts none: the quotes before it are odd in number.
fn comment(number: usize, line: &str) -> Option<Line<'_>> {
    if line.trim_start().starts_with("//") {
        return Some(Line { number, text: line.trim_start(), columns: Some(line.chars().count()) });
    }
    let is_code = |(at, _): &(usize, &str)| line[..*at].matches('"').count().is_multiple_of(2);
    let (at, _) = line.match_indices(" // ").find(is_code)?;
    Some(Line { number, text: &line[at + 1..], columns: None })
}

/// Lines that are only a comment.
fn hash_comments(text: &str) -> Vec<Line<'_>> {
    let lines = (1..).zip(text.lines()).map(|(number, line)| (number, line.trim_start(), line));
    let comments = lines.filter(|(_, text, _)| text.starts_with('#'));
    comments.map(|(number, text, line)| Line { number, text, columns: Some(line.chars().count()) }).collect()
}

/// Outside tables and code blocks, which are between fences, or indented and after an empty line.
fn markdown(text: &str) -> Vec<Line<'_>> {
    let (mut is_fenced, mut may_be_code) = (false, true);
    let prose = |(number, line): (usize, _)| {
        let line: &str = line;
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_indented = line.starts_with("    ") && may_be_code;
        may_be_code = line.is_empty() || is_indented;
        let is_code = is_fence || is_fenced || is_indented;
        let is_prose = !is_code && !line.starts_with('|');
        is_prose.then(|| Line { number, text: line, columns: Some(line.chars().count()) })
    };
    (1..).zip(text.lines()).filter_map(prose).collect()
}

/// The lines of the repository in which `count` finds something, each as often as it does.
fn found(count: impl Fn(&str, &Line) -> usize) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in tracked().unwrap_or_default() {
        for line in
            prose(&name, &text).iter().filter(|_| !EXEMPT.iter().any(|exempt| name.starts_with(exempt)))
        {
            let place = format!("{name}:{}: {}", line.number, line.text);
            found.extend(std::iter::repeat_n(place, count(&name, line)));
        }
    }
    found
}

#[test]
fn comments_and_prose_end_at_column_100() {
    let long = found(|_, line| is_long(line).into());
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_comment_or_prose_has_a_banned_phrase() {
    let banned = found(|_, line| count_all(line, &BANNED));
    assert!(banned.is_empty(), "{banned:#?}");
}

#[test]
fn few_comments_are_about_persons() {
    let persons = found(|name, line| if name.ends_with(".rs") { count_all(line, &PERSONS) } else { 0 });
    assert!(persons.len() <= MOST_PERSONS, "{persons:#?}");
}

#[test]
fn planted_words_and_columns_are_reported() {
    let (end, long) = ("x".repeat(COLUMNS - 4), "x".repeat(COLUMNS - 3));
    let text = format!(
        "//! A thread who waits, and nobody else.\n/// {end}\n/// {long}\nlet s = \"a // b\"; // is {}\n",
        BANNED[0]
    );
    let lines = prose("x.rs", &text);
    let counts: Vec<_> = lines.iter().map(|line| (line.number, count_all(line, &PERSONS))).collect();
    assert_eq!(counts, [(1, 2), (2, 0), (3, 0), (4, 0)]);
    assert_eq!(lines.iter().map(is_long).collect::<Vec<_>>(), [false, false, true, false]);
    assert_eq!(lines.iter().map(|line| count_all(line, &BANNED)).collect::<Vec<_>>(), [0, 0, 0, 1]);
    assert_eq!(count_all(&lines[0], &["wait", "a thread"]), 1, "whole words only");
    assert_eq!(count(&plain("The enum `Who`."), "who"), 0, "code is left out");
    let page = format!("Who?\n\n```text\n{long}\n```\n| {long} |\n{long} {long}\n\n    {long}\n");
    let lines = prose("x.md", &page);
    assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 2, 7, 8]);
    assert_eq!((count_all(&lines[0], &PERSONS), is_long(&lines[2])), (1, true));
    let link = format!("[1]: https://example.org/{long}");
    assert!(!is_long(&prose("x.md", &link)[0]), "a link cannot be broken");
    for script in ["x.sh", "x.toml", ".ci/run"] {
        let text = format!("# who\nx = 1 # {long}\n    # {long}\n# {}\n", BANNED[1]);
        let lines = prose(script, &text);
        assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 3, 4], "{script}");
        assert_eq!(lines.iter().map(is_long).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(lines.iter().map(|line| count_all(line, &BANNED)).sum::<usize>(), 1);
    }
    assert_eq!(prose("x.json", "# who"), []);
}
