//! The symbols of a PTX text, line by line as LLVM writes them.

/// Functions that the driver itself defines for every module.
const DRIVER_DEFINES: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

/// The symbols that `ptx` declares and does not define, without those that the driver defines.
/// Shared memory that is sized at launch does not count.
pub fn unresolved(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(declared)
}

/// The names of the kernels in `ptx`.
pub fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines()
        .filter_map(|line| line.trim_start().strip_prefix(".visible .entry "))
        .filter_map(|rest| rest.split(['(', ' ']).next())
}

/// The names of the functions that `ptx` defines for other modules.
pub fn functions(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| name_of_function(line.trim_start().strip_prefix(".visible .func")?))
}

/// The name in the head of a function without its directive: ` (.param .b64 func_retval0) name(`.
pub(crate) fn name_of_function(head: &str) -> Option<&str> {
    let head = head.trim_start();
    let head = head.strip_prefix('(').map_or(Some(head), |rest| Some(rest.split_once(')')?.1))?;
    head.split(['(', ';']).next().map(str::trim)
}

/// The symbol that `line` declares without defining it.
fn declared(line: &str) -> Option<&str> {
    let declared = line.trim_start().strip_prefix(".extern ")?;
    if declared.starts_with(".shared") {
        return None;
    }
    // `.extern .func  (.param .b32 func_retval0) name`, `.extern .global .align 4 .u32 name;`
    let name = match declared.strip_prefix(".func") {
        Some(head) => name_of_function(head)?,
        None => declared.split(['[', ';']).next()?.split_whitespace().last()?,
    };
    (!DRIVER_DEFINES.contains(&name)).then_some(name)
}

/// The largest register limit of the kernels of `ptx`. `None` unless all kernels have a limit.
pub fn register_limit(ptx: &str) -> Option<u32> {
    let entries = ptx.matches(".visible .entry ").count();
    let limits = ptx.lines().filter_map(|line| line.trim().strip_prefix(".maxnreg ")?.trim().parse().ok());
    let limits: Vec<u32> = limits.collect();
    (limits.len() == entries).then(|| limits.into_iter().max()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = ".version 7.0\n.target sm_70\n.visible .entry double(\n.param .u64 p\n)\n{ ret; }\n";

    #[test]
    fn kernels_and_functions_are_told_apart() {
        assert_eq!(entries(KERNEL).collect::<Vec<_>>(), ["double"]);
        let library = ".version 7.0\n.target sm_70\n.visible .func  (.param .b64 func_retval0) wh_malloc(\n\
                       .param .b64 wh_malloc_param_0\n)\n{ ret; }\n.visible .func wh_free()\n{ ret; }\n\
                       .func inner()\n{ ret; }\n";
        assert_eq!(functions(library).collect::<Vec<_>>(), ["wh_malloc", "wh_free"]);
        assert_eq!(entries(library).count() + functions(KERNEL).count(), 0);
    }

    #[test]
    fn unresolved_symbols_are_named() {
        let bad = ".extern .func  (.param .b32 func_retval0) memcmp\n(\n.extern .func abort_it()\n;\n\
                   .extern .global .align 4 .u32 LIMIT;\n.extern .func (.param .b32 r) vprintf\n\
                   .extern .shared .align 16 .b8 buffer[];\n";
        assert_eq!(unresolved(bad).collect::<Vec<_>>(), ["memcmp", "abort_it", "LIMIT"]);
        assert_eq!(unresolved(KERNEL).count(), 0);
    }

    #[test]
    fn functions_get_a_limit_where_all_kernels_have_one() {
        let kernel = |limit: &str| format!(".visible .entry k(\n)\n{limit}\n{{\n\tret;\n}}\n");
        assert_eq!(register_limit(&kernel(".maxnreg 32")), Some(32));
        assert_eq!(register_limit(&(kernel(".maxnreg 32") + &kernel(".maxnreg 40"))), Some(40));
        assert_eq!(register_limit(&(kernel(".maxnreg 32") + &kernel(""))), None);
        assert_eq!(register_limit(""), None);
    }
}
