//! Builds a kernel crate to PTX from the command line:
//! `cargo run -p warpheap-build --example ptx -- gpu/kernels bundle/kernels.ptx sm_70 sm_90`

use std::process::ExitCode;
use warpheap_build::{Builder, Error};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, to, archs @ ..] = args.as_slice() else {
        eprintln!(
            "usage: ptx <kernel crate> <file.ptx> <sm_NN>...\nwrites file.sm_NN.ptx for each architecture"
        );
        return ExitCode::from(2);
    };
    match build(folder, to, archs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn build(folder: &str, to: &str, archs: &[String]) -> Result<(), Error> {
    for ptx in Builder::new(folder).copy_to(to).build_args(["--locked"]).build_archs(archs)? {
        println!("{} for {}, {}", ptx.path.display(), ptx.arch, ptx.compiler.version);
    }
    Ok(())
}
