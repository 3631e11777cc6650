//! The program as its users run it: what it prints, what it writes, and how it ends.

mod exports;
mod gallery;
mod inputs;
mod maps;
#[cfg(target_os = "linux")]
mod outputs;
mod pools;
mod reports;
mod runs;
mod support;
mod words;
