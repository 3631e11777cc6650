use super::trampoline::values;
use super::*;
use std::collections::HashSet;

const HEAD: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

/// The direct calls of `ptx`: function and target.
fn edges(ptx: &str) -> HashSet<(String, String)> {
    let code = code_alone(ptx);
    let graph = CallGraph::of(&code);
    graph.calls().map(|(from, to)| (from.to_owned(), to.to_owned())).collect()
}

fn has_cycle(ptx: &str) -> bool {
    !CallGraph::of(&code_alone(ptx)).closing_calls().is_empty()
}

fn two(ptx: &str) -> [String; 2] {
    let inputs = link_inputs(ptx).unwrap();
    let inputs: [Cow<'_, str>; 2] = inputs.try_into().expect("two texts");
    assert!(has_cycle(ptx) && !inputs.iter().any(|input| has_cycle(input)));
    inputs.map(Cow::into_owned)
}

#[test]
fn text_without_recursion_is_linked_as_it_is() {
    let text = format!(
        "{HEAD}.visible .entry k() {{ call.uni f, (); call.uni g, (); call %rd1, (), p; ret; }}\n\
         .func f() {{ // call f;\n call.uni g, (); ret; }}\n.func g() {{ call.uni vprintf, (); ret; }}\n"
    );
    assert!(matches!(link_inputs(&text).unwrap().as_slice(), [Cow::Borrowed(same)] if *same == text));
}

#[test]
fn a_function_that_calls_itself_calls_its_trampoline() {
    let text = format!(
        "{HEAD}.func  (.param .b32 func_retval0) f\n(\n.param .b64 f_param_0\n)\n;\n\
         .visible .entry k() {{ call.uni (retval0), f, (param0); ret; }}\n\
         .func  (.param .b32 func_retval0) f(\n.param .b64 f_param_0\n)\n\
         {{ @%p1 call (retval0), f, (param0); ret; }}\n"
    );
    let [kernels, trampolines] = two(&text);
    assert_eq!(
        kernels,
        format!(
            "{}\n.extern .func (.param .b32 func_retval0) f$trampoline (.param .b64 f_param_0);\n\n\
             .visible .func  (.param .b32 func_retval0) f\n(\n.param .b64 f_param_0\n)\n;\n\
             .visible .entry k() {{ call.uni (retval0), f, (param0); ret; }}\n\
             .visible .func  (.param .b32 func_retval0) f(\n.param .b64 f_param_0\n)\n\
             {{ @%p1 call (retval0), f$trampoline, (param0); ret; }}\n",
            HEAD.trim_end()
        )
    );
    assert_eq!(
        trampolines,
        format!(
            "{HEAD}.extern .func (.param .b32 func_retval0) f (.param .b64 f_param_0);\n\
             .visible .func (.param .b32 func_retval0) f$trampoline (.param .b64 f_param_0)\n{{\n\
             \t.reg .b16 %x8;\n\t.reg .b16 %x16;\n\t.reg .b32 %x32;\n\t.reg .b64 %x64;\n\
             \t.param .b64 $argument0;\n\
             \tld.param.b64 %x64, [f_param_0+0];\n\tst.param.b64 [$argument0+0], %x64;\n\
             \t.param .b32 $result;\n\tcall.uni ($result), f, ($argument0);\n\
             \tld.param.b32 %x32, [$result+0];\n\tst.param.b32 [func_retval0+0], %x32;\n\
             \tret;\n}}\n"
        )
    );
}

#[test]
fn one_call_of_a_longer_cycle_is_redirected() {
    let text = format!(
        "{HEAD}.visible .entry k() {{ call.uni a, (); ret; }}\n.func a() {{ call.uni b, (); ret; }}\n\
         .weak .func b() {{ call.uni c, (); call.uni d, (); ret; }}\n\
         .func c() {{ call.uni a, (); call.uni d, (); ret; }}\n.func d() {{ ret; }}\n"
    );
    let [kernels, trampolines] = two(&text);
    let of = |edges: &[(&str, &str)]| -> HashSet<_> {
        edges.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
    };
    let expected = [("k", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("c", "a$trampoline"), ("c", "d")];
    assert_eq!(edges(&kernels), of(&expected));
    assert_eq!(edges(&trampolines), of(&[("a$trampoline", "a")]));
    assert!(kernels.contains(".visible .func a()") && kernels.contains("\n.func c()"), "{kernels}");
}

/// Chains are not followed by recursion of this module.
#[test]
fn a_long_chain_does_not_exhaust_the_stack() {
    const LENGTH: usize = 20_000;
    let mut text = HEAD.to_owned();
    for i in 0..LENGTH {
        let _ = writeln!(text, ".func f{i}() {{ call.uni f{}, (); ret; }}", (i + 1) % LENGTH);
    }
    let [kernels, trampolines] = two(&text);
    assert_eq!((edges(&kernels).len(), edges(&trampolines).len()), (LENGTH, 1));
}

#[test]
fn values_of_every_shape_are_copied() {
    let copy = |declaration: &str| {
        let mut text = String::new();
        let values = values(declaration).unwrap();
        assert_eq!(values.len(), 1);
        values[0].write_copy(&mut text, "from", "to");
        let loads = text.lines().filter_map(|line| line.trim().strip_prefix("ld.param."));
        (values[0].name.to_owned(), loads.map(String::from).collect::<Vec<_>>())
    };
    for (declaration, name, loads) in [
        (".param .b8 x", "x", vec!["b8 %x8, [from+0];"]),
        (".param .u16 y", "y", vec!["b16 %x16, [from+0];"]),
        (".param .f64 z", "z", vec!["b64 %x64, [from+0];"]),
        (".param .align 16 .b8 v[16]", "v", vec!["b64 %x64, [from+0];", "b64 %x64, [from+8];"]),
        (
            ".param .align 4 .b8 v[12]",
            "v",
            vec!["b32 %x32, [from+0];", "b32 %x32, [from+4];", "b32 %x32, [from+8];"],
        ),
        (
            ".param .align 8 .b8 v [3]",
            "v",
            vec!["b8 %x8, [from+0];", "b8 %x8, [from+1];", "b8 %x8, [from+2];"],
        ),
    ] {
        assert_eq!(copy(declaration), (name.to_owned(), loads.into_iter().map(String::from).collect()));
    }
}

#[test]
fn declarations_of_unknown_form_are_not_linked() {
    // An alias may hide a cycle.
    let alias = format!("{HEAD}.func f() {{ call.uni g, (); ret; }}\n.func g();\n.alias g, f;\n");
    assert_eq!(link_inputs(&alias), None);
    let huge = format!(".param .b64 x[{}]", usize::MAX);
    for parameters in [&huge, ".reg .b64 x", ".param .align", ".param .quaternion x", ".param .b8 x[]", "x"] {
        let text = format!("{HEAD}.func f({parameters}) {{ call.uni f, (param0); ret; }}\n");
        assert_eq!(link_inputs(&text), None, "{parameters}");
    }
}
