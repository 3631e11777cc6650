//! Compiles this program's kernels to PTX.

fn main() -> Result<(), warpheap_build::Error> {
    let ptx = warpheap_build::Builder::module("src/kernels").build()?;
    println!("cargo::rustc-env=KERNELS_PTX={}", ptx.path.display());
    Ok(())
}
