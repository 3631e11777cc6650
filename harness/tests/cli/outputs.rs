//! Where the program writes: files of every kind, and a standard output that cannot be written.

use crate::support::{SMALL, err, out, rejects, status, stdout_and_stderr, warpheap};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const RESULTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../results/h200-2026-11-25/bench-suite-full.json");
const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gallery/pool.csv");
const MAP: &str = "map --backend cpu --demo fresh --bytes 1MiB";

/// Each option that writes a file, at the end of its command.
fn options() -> Vec<String> {
    let stress = format!("stress {SMALL} --allocator heap");
    let replay = format!("pool replay --backend cpu --pool driver --trace {LOG}");
    let bench = "pool bench --backend cpu --pool blocks --figure pair --rounds 1 --threads 2";
    vec![
        format!("{stress} --json"),
        format!("{stress} --html"),
        format!("{stress} --map"),
        "doctor --json".into(),
        format!("{MAP} --svg"),
        format!("{MAP} --json"),
        format!("{MAP} --perfetto"),
        format!("report {RESULTS} --html"),
        format!("report {RESULTS} --chart CHART --svg"),
        format!("{replay} --json"),
        format!("pool export --trace {LOG} --format perfetto --out"),
        format!("pool export --trace {LOG} --format pytorch --out"),
        format!("{bench} --json"),
        format!("{bench} --html"),
        "pool show --backend cpu --json".into(),
    ]
}

/// The command of `line`, with `path` at its end.
fn command(line: &str, path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpheap"));
    // The name of a chart has blanks.
    let word = |word| if word == "CHART" { "time: alloc over threads" } else { word };
    command.args(line.split_whitespace().map(word)).arg(path);
    command
}

fn run(line: &str, path: &Path) -> Output {
    command(line, path).output().expect("it starts")
}

fn succeeds(line: &str, path: &Path) -> String {
    let output = run(line, path);
    assert_eq!(status(&output), 0, "{line}: {}", stdout_and_stderr(&output));
    stdout_and_stderr(&output)
}

/// Every option of `--help` that names a file to write is in [`options`].
#[test]
fn all_options_that_write_are_tested() {
    let tested = options();
    for command in commands() {
        let help = out(&warpheap(&format!("{command} --help")));
        for option in ["--json", "--html", "--svg", "--map", "--perfetto", "--out"] {
            let has = help.contains(&format!("      {option} <FILE>"));
            let is_tested = tested.iter().any(|line| line.starts_with(&command) && line.ends_with(option));
            // The bench needs a GPU, or a suite.
            assert!(!has || is_tested || command == "bench", "{command} {option}");
        }
    }
}

#[test]
fn a_link_stays_and_its_file_is_written() {
    for line in options() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).expect("a folder");
        symlink("inner/file", at("relative")).expect("a link");
        symlink(at("relative"), at("chain")).expect("a link");
        for link in ["chain", "relative"] {
            succeeds(&line, &at(link));
            assert!(at("chain").is_symlink() && at("relative").is_symlink(), "{line}");
            assert!(at("inner/file").metadata().expect("it was written").len() > 20, "{line}");
        }
        assert_eq!(fs::read_dir(at("inner")).expect("a folder").count(), 1, "{line}");
    }
}

#[test]
fn a_pipe_stays_a_pipe_and_its_reader_gets_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let [fifo, got] = ["fifo", "got"].map(|name| folder.path().join(name));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it starts").success());
    for line in options() {
        // The reader ends even if no writer opens the pipe.
        let mut reader = Command::new("timeout");
        reader.args(["60", "cat"]).arg(&fifo).stdout(fs::File::create(&got).expect("a file"));
        let mut reader = reader.spawn().expect("it starts");
        succeeds(&line, &fifo);
        assert!(fifo.metadata().expect("a pipe").file_type().is_fifo(), "{line}");
        assert!(reader.wait().expect("it ends").success(), "{line}");
        assert!(got.metadata().expect("a file").len() > 20, "{line}");
    }
}

#[test]
fn a_device_stays_a_device() {
    for line in options() {
        succeeds(&line, Path::new("/dev/null"));
        assert!(fs::metadata("/dev/null").expect("a device").file_type().is_char_device(), "{line}");
        let full = run(&line, Path::new("/dev/full"));
        assert_eq!(status(&full), 5, "{line}: {}", stdout_and_stderr(&full));
        assert!(err(&full).contains("cannot write results to /dev/full: No space left"), "{}", err(&full));
    }
    succeeds(&format!("{MAP} --json /dev/null --svg"), Path::new("/dev/null"));
}

#[test]
fn descriptors_are_written_where_they_stand() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_warpheap")]).arg(&file);
        shell.output().expect("it starts")
    };
    let pipe = shell(&format!("\"$0\" {MAP} --json /dev/fd/3 3>&1 >/dev/null"));
    assert_eq!(status(&pipe), 0, "{}", stdout_and_stderr(&pipe));
    assert!(out(&pipe).starts_with("{\n") && out(&pipe).ends_with("}\n"), "{}", out(&pipe));
    fs::write(&file, "before\n").expect("written");
    let appended = shell(&format!("\"$0\" {MAP} --json /dev/fd/3 3>>\"$1\""));
    assert_eq!(status(&appended), 0, "{}", stdout_and_stderr(&appended));
    let text = fs::read_to_string(&file).expect("text");
    assert!(text.starts_with("before\n{\n") && text.ends_with("}\n"), "{text}");
}

#[test]
fn standard_output_by_any_name_has_nothing_else() {
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let output = run(&format!("{MAP} --json"), Path::new(name));
        assert_eq!(status(&output), 0, "{}", stdout_and_stderr(&output));
        assert!(out(&output).starts_with("{\n") && out(&output).ends_with("}\n"), "{name}");
        assert!(err(&output).contains("heap map"), "{}", err(&output));
    }
    for line in options() {
        let output = run(&line, Path::new("-"));
        assert_eq!(status(&output), 0, "{line}: {}", stdout_and_stderr(&output));
        let start = output.stdout.first().copied().expect("it is written");
        // JSON, HTML, SVG, or a pickle.
        assert!(b"{[<\x80".contains(&start), "{line}: {}", String::from_utf8_lossy(&output.stdout));
    }
    rejects(&format!("{MAP} --json - --svg /dev/stdout"), "have the same target");
}

/// Runs the program as another user than root.
fn as_user(folder: &Path, line: &str, path: &Path) -> Output {
    let mut command = command(line, path);
    if fs::metadata("/proc/self").expect("it is there").uid() == 0 {
        let program = folder.join("warpheap");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_warpheap"), &program).expect("a copy");
        }
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new(program);
        command.args(arguments).uid(NOBODY).gid(NOBODY);
    }
    command.output().expect("it starts")
}

const NOBODY: u32 = 65_534;

#[test]
fn a_user_gets_what_permissions_allow() {
    let folder = tempfile::tempdir().expect("a folder");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own");
    let at = |name: &str| -> PathBuf { folder.path().join("fixed").join(name) };
    mode(folder.path(), 0o755);
    fs::create_dir(folder.path().join("fixed")).expect("a folder");
    for (name, bits) in [("open", 0o666), ("shut", 0o444)] {
        fs::write(at(name), "old").expect("written");
        mode(&at(name), bits);
    }
    mode(&folder.path().join("fixed"), 0o555);
    let run = |path: &Path| as_user(folder.path(), &format!("{MAP} --json"), path);
    let null = run(Path::new("/dev/null"));
    assert_eq!(status(&null), 0, "{}", stdout_and_stderr(&null));
    let open = run(&at("open"));
    assert_eq!(status(&open), 0, "{}", stdout_and_stderr(&open));
    assert!(fs::read_to_string(at("open")).expect("text").starts_with("{\n"), "written in place");
    for name in ["shut", "new"] {
        let output = run(&at(name));
        assert_eq!((status(&output), out(&output).as_str()), (2, ""), "{name}: it began");
        assert!(err(&output).contains("Permission denied"), "{}", err(&output));
    }
    assert_eq!(fs::read_to_string(at("shut")).expect("text"), "old");
    assert_eq!(fs::read_dir(folder.path().join("fixed")).expect("a folder").count(), 2);
    // For the removal of the folder by another user than root.
    mode(&folder.path().join("fixed"), 0o755);
}

#[test]
fn a_folder_is_no_target() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in options() {
        let output = run(&line, folder.path());
        assert_eq!((status(&output), out(&output).as_str()), (2, ""), "{line}");
        assert!(err(&output).contains("it is a folder; use the path of a file"), "{}", err(&output));
    }
}

/// The commands, by the text of `--help`.
fn commands() -> Vec<String> {
    let of = |line: &str| -> Vec<String> {
        let help = out(&warpheap(&format!("{line} --help")));
        let (_, list) = help.split_once("Commands:\n").expect("commands");
        let lines = list.lines().take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        names.filter(|name| !["", "help"].contains(name)).map(|name| format!("{line} {name}")).collect()
    };
    let all = of("").into_iter().filter(|name| name != " pool").chain(of("pool"));
    all.map(|name| name.trim().to_owned()).collect()
}

/// Each command with its text on standard output.
fn texts() -> Vec<String> {
    let to_null = |line: &String| format!("{line} /dev/null");
    let mut all: Vec<String> = options().iter().filter(|line| !line.contains("CHART")).map(to_null).collect();
    all.push("stress --delays list".into());
    all.push("bench --suite load --backend cpu --heap 1MiB".into());
    all.extend(commands().iter().map(|command| format!("{command} --help")));
    all.extend(["--help", "--version", "help", "pool --help"].map(String::from));
    all
}

fn run_to(line: &str, stdout: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpheap"));
    command.args(line.split_whitespace()).stdout(stdout).stderr(Stdio::piped());
    command.spawn().expect("it starts").wait_with_output().expect("its output")
}

#[test]
fn lost_text_is_an_error_of_every_command() {
    let texts = texts();
    for command in commands() {
        let with_text = |line: &&String| line.starts_with(&command) && !line.ends_with("--help");
        assert!(texts.iter().any(|line| with_text(&line)), "{command} is not tested");
    }
    for line in texts {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let output = run_to(&line, full);
        assert_eq!(status(&output), 5, "{line}: {}", err(&output));
        let said = err(&output);
        assert!(said.contains("error: text of this run was lost: No space left"), "{line}: {said}");
    }
}

#[test]
fn a_closed_pipe_ends_every_command_without_a_message() {
    for line in texts() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = run_to(&line, writer);
        assert_eq!(output.status.signal(), Some(13), "{line}: {}", err(&output));
        assert_eq!(err(&output), "", "{line}");
    }
}
