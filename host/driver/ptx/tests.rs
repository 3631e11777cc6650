use super::*;

fn param(size: usize, align: usize) -> Param {
    Param { size, align }
}

fn entry(text: &str) -> Vec<Param> {
    Ptx::parse(text).entries.remove("k").unwrap()
}

/// As rustc 1.96 writes it.
const RUSTC: &str = "
.version 7.0
.target sm_70
.address_size 64

	// .globl	double
.visible .entry double(
	.param .align 8 .b8 double_param_0[16],
	.param .u64 .ptr .align 1 double_param_1,
	.param .u8 double_param_2,
	.param .f64 double_param_3
)
{
	.reg .pred 	%p<4>;
	ld.param.b64 	%rd1, [double_param_0];
	call.uni (retval0), helper, (param0);
	ret;
}
.visible .entry none()
{
	ret;
}
.func (.param .b32 retval) helper(.param .b64 p) { ret; }
";

#[test]
fn reads_what_rustc_writes() {
    let ptx = Ptx::parse(RUSTC);
    assert_eq!((ptx.version.as_str(), ptx.target.as_str()), ("7.0", "sm_70"));
    let names: Vec<_> = ptx.entries.keys().map(String::as_str).collect();
    assert_eq!(names, ["double", "none"]);
    assert_eq!(ptx.entries["double"], [param(16, 8), param(8, 8), param(1, 1), param(8, 8)]);
    assert_eq!(ptx.entries["none"], []);
}

#[test]
fn the_alignment_of_a_pointee_is_not_the_parameters() {
    assert_eq!(entry(".entry k(.param .u64 .ptr .global .align 256 a)"), [param(8, 8)]);
    assert_eq!(entry(".entry k(.param .align 16 .b8 a[32])"), [param(32, 16)]);
}

#[test]
fn reads_every_scalar_type() {
    for (name, bytes) in
        [("b8", 1), ("s16", 2), ("bf16", 2), ("f16x2", 4), ("u32", 4), ("f32", 4), ("f64", 8), ("b128", 16)]
    {
        assert_eq!(entry(&format!(".entry k(.param .{name} a)")), [param(bytes, bytes)], "{name}");
    }
}

#[test]
fn passes_over_comments_and_directives() {
    let text = "/* .entry no(.param .u32 a) */ .weak .entry k /* here */ (.param .u32 a, // .param .u64 b,
        .param .u64 c) .maxntid 256, 1, 1 .minnctapersm 2 { }";
    let ptx = Ptx::parse(text);
    assert_eq!(ptx.entries.len(), 1);
    assert_eq!(ptx.entries["k"], [param(4, 4), param(8, 8)]);
}

#[test]
fn an_entry_without_parentheses_has_no_parameters() {
    assert_eq!(entry(".visible .entry k { .reg .b32 a; }"), []);
}

#[test]
fn survives_any_prefix_of_a_text() {
    for end in 0..RUSTC.len() {
        let entries = Ptx::parse(&RUSTC[..end]).entries;
        assert!(entries.len() <= 2, "{end}");
    }
    assert_eq!(Ptx::parse("no PTX at all / // /*").entries.len(), 0);
}

#[test]
fn sizeless_parameters_do_not_exist_in_ptx() {
    assert_eq!(signature(&[param(4, 4), param(0, 1), param(8, 8)]), [param(4, 4), param(8, 8)]);
}

#[test]
fn describes_parameters_in_words() {
    assert_eq!(describe(&[]), "no parameters");
    assert_eq!(describe(&[param(4, 4)]), "1 parameter (4 B aligned to 4)");
    assert_eq!(describe(&[param(4, 4), param(16, 8)]), "2 parameters (4 B aligned to 4, 16 B aligned to 8)");
}

#[test]
fn reads_variables_that_the_host_can_find() {
    let ptx = Ptx::parse(
        ".version 7.0\n.target sm_70\n.global .align 1 .b8 hidden[3];\n.visible .global .align 8 .b8 state[2184];\n\
         .visible .global .u64 word = 7;\n.visible .global .align 4 .b8 text[4] = {97, 98, 99, 0};\n\
         .visible .entry k(.param .u64 .ptr .global .align 8 k_0) { ld.global.b64 %rd1, [state]; ret; }\n",
    );
    let names: Vec<_> = ptx.globals.keys().map(String::as_str).collect();
    assert_eq!(names, ["state", "text", "word"]);
    assert_eq!([ptx.globals["state"], ptx.globals["text"]], [param(2184, 8), param(4, 4)]);
    assert_eq!(ptx.globals["word"], param(8, 8));
    assert_eq!(ptx.entries["k"], [param(8, 8)]);
}
