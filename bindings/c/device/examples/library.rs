//! Writes the device library: `cargo run -p warpheap-c-device --example library -- FOLDER` writes
//! `warpheap_device.sm_90.ptx`, likewise for each architecture, and `warpheap_inline.cuh`.

use std::path::Path;
use std::process::ExitCode;
use warpheap::KernelImage;
use warpheap_c_device::{inline, libraries};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: library FOLDER");
        return ExitCode::from(2);
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<(), String> {
    let libraries = libraries().map_err(|why| format!("this build has no device library: {why}"))?;
    let ptx =
        |library: &KernelImage| (format!("warpheap_device.{}.ptx", library.arch), library.ptx.to_owned());
    let mut files: Vec<_> = libraries.iter().map(ptx).collect();
    files.push(("warpheap_inline.cuh".into(), inline::header(libraries)?));
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}
