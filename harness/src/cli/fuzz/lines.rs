//! Command lines: guided ones, which usually run, and any made of the program's own definition.

use super::super::args::Cli;
use super::case::Case;
use super::files;
use super::values::{NUMBERS, SMALL, WORDS, text};
use clap::{Arg, Command, CommandFactory};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// A word of a line.
type Word = Vec<u8>;

/// Files and folders, as `Case` names them.
const PATHS: &[&str] =
    &["{0}", "{1}", "{2}", "{new 0}", "{new 1}", "{folder}", "{absent/x}", "-", "", "/dev/null", "/dev/full"];

/// All cases.
pub fn cases() -> impl Strategy<Value = Case> {
    prop_oneof![4 => reports(), 2 => maps(), 2 => exports(), 1 => replays(), 3 => any_line()]
}

/// An option with one of these values.
fn option(name: &'static str, values: &'static [&'static str]) -> BoxedStrategy<Vec<Word>> {
    select(values).prop_map(move |value| vec![name.into(), value.into()]).boxed()
}

fn flag(name: &'static str) -> BoxedStrategy<Vec<Word>> {
    Just(vec![name.into()]).boxed()
}

/// A line that starts with `start`, with some of the options.
fn line(
    start: &'static [&'static str],
    options: Vec<BoxedStrategy<Vec<Word>>>,
) -> impl Strategy<Value = Vec<Word>> {
    let count = options.len();
    subsequence(options, 0..=count).prop_flat_map(|chosen| chosen).prop_map(move |chosen| {
        let start = start.iter().map(|word| Word::from(*word));
        start.chain(chosen.into_iter().flatten()).collect()
    })
}

fn reports() -> BoxedStrategy<Case> {
    let charts = &["time: alloc over threads", "ratio to the floor: alloc over threads", "pairs", "x"];
    let line = prop_oneof![
        line(
            &["report", "{0}", "--html", "{new 0}"],
            vec![
                Just(vec!["{1}".into()]).boxed(),
                option("--against", &["{2}", "{0}"]),
                option("--threshold", &["0", "10%", "1e-9", "1000000"]),
            ]
        ),
        line(
            &["report", "{0}", "--against", "{0}"],
            vec![Just(vec!["--svg".into(), "{new 1}".into()]).boxed(), option("--chart", charts),]
        ),
    ];
    let others = vec(files::other_results(), 2);
    (line, files::results(), others)
        .prop_map(|(line, file, others)| Case::new(line, [vec![file], others].concat()))
        .boxed()
}

fn maps() -> BoxedStrategy<Case> {
    let line = line(
        &["map", "{0}"],
        vec![
            Just(vec!["{1}".into()]).boxed(),
            option("--svg", &["{new 0}"]),
            option("--json", &["{new 1}"]),
            option("--perfetto", &["{new 2}"]),
            option("--width", &["40", "41", "80", "1000"]),
            option("--color", &["always", "never"]),
            flag("--report"),
        ],
    );
    (line, vec(files::maps(), 2)).prop_map(|(line, files)| Case::new(line, files)).boxed()
}

fn exports() -> BoxedStrategy<Case> {
    let filters = || {
        vec![
            option("--min-size", &["1", "4096", "2^63"]),
            option("--max-size", &["1", "4096", "2^63"]),
            option("--from", &["0", "1e-6", "0.0003", "1e19"]),
            option("--to", &["1e-9", "0.0003", "1e19"]),
            option("--stream", &["0", "1", "0x7f1b10000000"]),
            option("--tag", &["weights", "", "x"]),
        ]
    };
    let line = prop_oneof![
        line(&["pool", "export", "--trace", "{0}", "--out", "{new 0}", "--format", "perfetto"], filters()),
        line(&["pool", "export", "--trace", "{0}", "--out", "{new 0}", "--format", "pytorch"], filters()),
    ];
    (line, files::logs()).prop_map(|(line, log)| Case::new(line, vec![log])).boxed()
}

fn replays() -> BoxedStrategy<Case> {
    let line = line(
        &["pool", "replay", "--backend", "cpu", "--trace", "{0}"],
        vec![
            option("--pool", &["driver", "driver-pool", "blocks", "caching", "bump"]),
            option("--bytes", &["1", "512", "64KiB", "1MiB", "2^40", "2^63", "18446744073709551615"]),
            option("--threads", &["logged"]),
            option("--json", &["{new 0}"]),
        ],
    );
    (line, files::logs()).prop_map(|(line, log)| Case::new(line, vec![log])).boxed()
}

/// A line of any command, with any of its options and more.
fn any_line() -> BoxedStrategy<Case> {
    let lines: Vec<_> = commands(&Cli::command(), &[]).iter().map(any_line_of).collect();
    let file = prop_oneof![files::results(), files::maps(), files::logs()];
    (proptest::strategy::Union::new(lines), vec(file, 0..3))
        .prop_map(|(line, files)| Case::new(line, files))
        .boxed()
}

/// Each command and its subcommands, with the words that select it.
fn commands(command: &Command, path: &[String]) -> Vec<(Vec<String>, Command)> {
    let deeper = command.get_subcommands().flat_map(|sub| {
        let path: Vec<_> = path.iter().cloned().chain([sub.get_name().to_owned()]).collect();
        commands(sub, &path)
    });
    std::iter::once((path.to_vec(), command.clone())).chain(deeper).collect()
}

fn any_line_of((path, command): &(Vec<String>, Command)) -> BoxedStrategy<Vec<Word>> {
    let path: Vec<Word> = path.iter().map(|word| word.clone().into_bytes()).collect();
    // Otherwise most lines of these commands would not run.
    let start: &[&str] = match command.get_name() {
        "stress" => &["--backend=cpu", "--threads=256", "--rounds=1"],
        "bench" if path.len() == 2 => &["--backend=cpu", "--allocations=2", "--rounds=1", "--threads=2"],
        "map" => &["--backend=cpu", "--bytes=1MiB"],
        "bench" | "replay" | "show" => &["--backend=cpu"],
        _ => &[],
    };
    let start: Vec<Word> = start.iter().map(|word| Word::from(*word)).collect();
    let start = prop_oneof![4 => Just(start), 1 => Just(Vec::new())];
    let mut words: Vec<_> = command.get_arguments().map(words_of).collect();
    words.push(text().prop_map(|text| vec![text.into_bytes()]).boxed());
    words.push(vec(any::<u8>(), 0..6).prop_map(|bytes| vec![bytes]).boxed());
    let words = vec(proptest::strategy::Union::new(words), 0..7);
    (start, words)
        .prop_map(move |(start, words)| {
            let words = words.into_iter().flatten();
            path.iter().cloned().chain(start).chain(words).collect()
        })
        .boxed()
}

/// An argument with a value that may suit it.
fn words_of(arg: &Arg) -> BoxedStrategy<Vec<Word>> {
    let name: Option<Word> = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => Some(format!("--{long}").into_bytes()),
        (None, Some(short)) => Some(format!("-{short}").into_bytes()),
        (None, None) => None,
    };
    if !arg.get_action().takes_values() {
        return Just(name.into_iter().collect()).boxed();
    }
    let meant: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let meant = if meant.is_empty() {
        let names = arg.get_value_names().unwrap_or_default();
        let is_path = names.iter().any(|name| ["FILE", "RESULTS"].contains(&name.as_str()));
        let meant = if is_path { PATHS } else { SMALL };
        meant.iter().map(|value| (*value).to_owned()).collect()
    } else {
        meant
    };
    let limits = prop_oneof![select(NUMBERS), select(WORDS)].prop_map(|word: &str| word.as_bytes().to_vec());
    let value = prop_oneof![
        6 => select(meant).prop_map(String::into_bytes),
        3 => limits,
        1 => text().prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..6),
    ];
    let is_joined = prop::bool::weighted(0.3);
    (value, is_joined)
        .prop_map(move |(value, is_joined)| match &name {
            None => vec![value],
            Some(name) if is_joined => vec![[&name[..], b"=", &value].concat()],
            Some(name) => vec![name.clone(), value],
        })
        .boxed()
}
