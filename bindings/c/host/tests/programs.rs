//! Programs in C and C++ that use the header and the shared library, on the CPU.
#![cfg(all(unix, not(loom)))]

mod compile;

use compile::{Language, compile};
use std::process::Command;

/// Runs the program and returns what it printed.
fn run(name: &str, text: &str, language: Language) -> String {
    let folder = compile(name, text, language);
    let mut command = Command::new(folder.path().join("program"));
    let output = command.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{printed}\n{failure}", output.status);
    println!("{printed}");
    printed
}

#[test]
fn every_function_works() {
    run("functions", include_str!("c/functions.c"), Language::C99);
}

#[test]
fn wrong_owners_and_addresses_are_errors() {
    let printed = run("errors", include_str!("c/errors.c"), Language::C99);
    assert!(printed.lines().count() > 100, "{printed}");
}

#[test]
fn settings_and_devices_that_do_not_exist_are_errors() {
    let printed = run("settings", include_str!("c/settings.c"), Language::C99);
    assert!(printed.lines().count() > 50, "{printed}");
}

#[test]
fn threads_share_pools_and_destroy_them() {
    run("threads", include_str!("c/threads.c"), Language::C99);
}

#[test]
fn calls_in_a_forked_child_are_errors() {
    let printed = run("fork", include_str!("c/fork.c"), Language::C99);
    assert!(printed.contains("WH_FORKED: a forked child cannot use warpheap"), "{printed}");
}

#[test]
fn the_header_serves_cpp() {
    run("header", include_str!("c/header.cpp"), Language::Cpp17);
}

#[test]
fn the_program_of_the_readme_runs() {
    let (_, program) = include_str!("../README.md").split_once("```c\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    assert_eq!(run("readme", program, Language::C99), "a heap of libwarpheap 0.1.0\n");
}
