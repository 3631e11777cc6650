//! The comments of Rust, TOML and shell files and the prose of Markdown files.

/// A line of text in its file.
#[derive(Debug, PartialEq)]
pub struct Line<'a> {
    pub number: usize,
    /// The text without the code before it.
    pub text: &'a str,
    /// Columns of the whole line. `None` for a comment after code, which rustfmt limits.
    pub columns: Option<usize>,
}

/// The lines of the file `name` that people read: the comments of Rust, TOML and shell files, the
/// prose of Markdown files, nothing of other files.
pub fn prose<'a>(name: &str, text: &'a str) -> Vec<Line<'a>> {
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
