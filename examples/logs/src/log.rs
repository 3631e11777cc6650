//! The log of a web server, the same on every machine.

use std::fmt::Write;
use warpheap_device::check::hash::absorb;

const METHODS: [&str; 4] = ["GET", "GET", "GET", "POST"];
const FOLDERS: [&str; 8] = ["users", "orders", "images", "search", "cart", "static/css", "api/v2", "admin"];
/// One line in four reports an error.
const STATES: [u32; 8] = [200, 200, 200, 200, 304, 301, 404, 500];
const AGENTS: [&str; 3] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0 Safari/537.36",
    "curl/8.5.0",
];

/// A log of at least `bytes` bytes, and the ends of its parts. A part has whole lines, and at least
/// `part_bytes` bytes, but for the last one.
pub fn log(bytes: usize, part_bytes: usize) -> (Vec<u8>, Vec<u32>) {
    let mut text = String::with_capacity(bytes + part_bytes);
    let (mut ends, mut start) = (Vec::new(), 0);
    for line in 0.. {
        append(&mut text, line);
        let is_full = text.len() >= bytes;
        if is_full || text.len() - start >= part_bytes {
            start = text.len();
            ends.push(u32::try_from(start).expect("a log of less than 4 GiB"));
        }
        if is_full {
            break;
        }
    }
    (text.into_bytes(), ends)
}

/// Appends the line with this number.
fn append(text: &mut String, line: u64) {
    let mut state = line;
    let mut below = |limit: usize| {
        state = absorb(state, limit as u64);
        (state % limit as u64) as usize
    };
    writeln!(
        text,
        r#"10.{}.{}.{} - - [{:02}/Nov/2026:{:02}:{:02}:{:02} +0000] "{} /{}/{} HTTP/1.1" {} {} "-" "{}""#,
        below(4),
        below(256),
        below(256),
        1 + below(28),
        below(24),
        below(60),
        below(60),
        METHODS[below(METHODS.len())],
        FOLDERS[below(FOLDERS.len())],
        below(40),
        STATES[below(STATES.len())],
        below(100_000),
        AGENTS[below(AGENTS.len())],
    )
    .expect("a text grows");
}
