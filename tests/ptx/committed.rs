//! The PTX that tests have as a file is complete: ptxas accepts it. The CPU never reads the bodies
//! of its kernels.

use crate::support::assembler::{assemble, ptxas};

const FILES: [(&str, &str); 3] = [
    ("driver/kernels.ptx", include_str!("../driver/kernels.ptx")),
    ("driver/recursion.ptx", include_str!("../driver/recursion.ptx")),
    ("driver/kernel_arguments/kernels.ptx", include_str!("../driver/kernel_arguments/kernels.ptx")),
];

#[test]
fn ptxas_accepts_the_ptx_of_the_driver_tests() {
    let Some(ptxas) = ptxas() else { return };
    for (file, ptx) in FILES {
        let kernels = assemble(&ptxas, ptx, "sm_75");
        assert_eq!(kernels.len(), ptx.matches(".visible .entry ").count(), "{file}");
    }
}

#[test]
#[should_panic(expected = "ptxas rejects the kernels")]
fn a_missing_declaration_is_found() {
    let Some(ptxas) = ptxas() else { panic!("ptxas rejects the kernels, or would if it were there") };
    let (_, ptx) = FILES[2];
    let declaration = ptx.lines().find(|line| line.contains(".local ")).expect("a kernel has local memory");
    assemble(&ptxas, &ptx.replace(declaration, ""), "sm_75");
}
