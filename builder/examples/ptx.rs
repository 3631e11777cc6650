//! Builds a kernel crate, or a module of kernels of this workspace, to PTX from the command line:
//! `cargo run -p warpheap-build --example ptx -- harness/kernels bundle/kernels.ptx sm_70 sm_90`

use std::path::Path;
use std::process::ExitCode;
use warpheap_build::{Builder, Error};

/// The device crate that a module is compiled against.
const DEVICE_CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kernels, to, archs @ ..] = args.as_slice() else {
        eprintln!(
            "usage: ptx <crate or module> <file.ptx> <sm_NN>...\nwrites file.sm_NN.ptx for each architecture"
        );
        return ExitCode::from(2);
    };
    match build(kernels, to, archs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn build(kernels: &str, to: &str, archs: &[String]) -> Result<(), Error> {
    let builder = match Path::new(kernels).join("Cargo.toml").is_file() {
        true => Builder::new(kernels).build_args(["--locked"]),
        false => Builder::module(kernels).device_crate(DEVICE_CRATE, ["panic-handler"]),
    };
    for ptx in builder.copy_to(to).build_archs(archs)? {
        println!("{} for {}, {}", ptx.path.display(), ptx.arch, ptx.compiler.version);
    }
    Ok(())
}
