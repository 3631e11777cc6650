//! Tests of the parser of ptxas's reports.

use crate::ptx::assembler::{Part, Usage, parts, usages};

#[test]
fn a_spill_is_read_off_the_report() {
    let report = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'lean' for 'sm_80'\n\
        ptxas info    : Function properties for lean\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
        ptxas info    : Used 12 registers, used 0 barriers, 376 bytes cmem[0]\n\
        ptxas info    : Compiling entry function 'fat' for 'sm_80'\n\
        ptxas info    : Function properties for fat\n    64 bytes stack frame, 48 bytes spill stores, 52 bytes spill loads\n\
        ptxas info    : Used 255 registers, used 1 barriers\n\
        ptxas info    : Function properties for fatter\n    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n";
    let lean = Usage { kernel: "lean".into(), registers: 12, ..Usage::default() };
    let fat = Usage {
        kernel: "fat".into(),
        registers: 255,
        stack_bytes: 72,
        spill_bytes: 106,
        own_stack_bytes: 64,
        own_spill_bytes: 100,
    };
    assert_eq!(usages(report), [lean, fat]);
}

#[test]
fn kernels_and_functions_are_read_off_a_relocatable_report() {
    let report = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Function properties for slow\n    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
        ptxas info    : Compile time = 2.1 ms\n\
        ptxas info    : Compiling entry function 'fast' for 'sm_80'\n\
        ptxas info    : Function properties for fast\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
        ptxas info    : Used 12 registers, used 0 barriers\n";
    let slow = Part { name: "slow".into(), registers: None, spill_bytes: 16 };
    let fast = Part { name: "fast".into(), registers: Some(12), spill_bytes: 0 };
    assert_eq!(parts(report), [slow, fast]);
}

#[test]
#[should_panic = "is among the lines of one"]
fn lines_of_two_kernels_are_not_mixed_up() {
    let report = "Compiling entry function 'other' for 'sm_80'\nFunction properties for other\n\
        Compiling entry function 'one' for 'sm_80'\nFunction properties for shared\n";
    usages(report);
}
