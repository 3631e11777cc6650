//! The PTX of a module, compared with what the program declares.
//!
//! Zero-sized parameters do not exist in PTX, so [`signature`] removes them from the program's
//! parameters.

use crate::error::{InvalidModule, Result};
use warpheap_device::kernel;
pub use warpheap_ptx::link_inputs;
use warpheap_ptx::{Param, UnknownKernel};
pub(crate) use warpheap_ptx::{Ptx, Stack, register_limit, stacks};

/// The text with only these `kernels`. PTX with non-empty debug sections is returned unchanged,
/// because those sections refer to places in all functions.
pub(crate) fn extract_kernels(text: &str, kernels: &[&'static str]) -> Result<String> {
    warpheap_ptx::extract_kernels(text, kernels).map_err(|UnknownKernel(kernel)| {
        InvalidModule::UnknownKernel { kernel, known: entries_in_words(&Ptx::parse(text)) }.into()
    })
}

/// The names of the first few entry points, for messages.
pub(crate) fn entries_in_words(ptx: &Ptx) -> String {
    names_in_words(ptx.entries.keys().map(String::as_str))
}

/// The first few of these kernel names, for messages.
pub(crate) fn names_in_words<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let all = names.len();
    let shown = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    match all {
        0 => "no kernel at all".into(),
        _ if all > SHOWN => format!("{shown} and {} more", all - SHOWN),
        _ => shown,
    }
}

/// The parameters that exist in PTX: all but the zero-sized ones.
pub(crate) fn signature(params: &[kernel::Param]) -> Vec<Param> {
    params.iter().filter(|p| p.size > 0).map(|p| Param { size: p.size, align: p.align }).collect()
}

/// `2 parameters (16 B aligned to 8, 4 B aligned to 4)`, for messages.
pub(crate) fn describe(params: &[Param]) -> String {
    let each = params.iter().map(|p| format!("{} B aligned to {}", p.size, p.align));
    match params.len() {
        0 => "no parameters".into(),
        1 => format!("1 parameter ({})", each.collect::<String>()),
        n => format!("{n} parameters ({})", each.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn param(size: usize, align: usize) -> Param {
        Param { size, align }
    }

    #[test]
    fn sizeless_parameters_do_not_exist_in_ptx() {
        let declared = [(4, 4), (0, 1), (8, 8)].map(|(size, align)| kernel::Param { size, align });
        assert_eq!(signature(&declared), [param(4, 4), param(8, 8)]);
    }

    #[test]
    fn describes_parameters_in_words() {
        assert_eq!(describe(&[]), "no parameters");
        assert_eq!(describe(&[param(4, 4)]), "1 parameter (4 B aligned to 4)");
        assert_eq!(
            describe(&[param(4, 4), param(16, 8)]),
            "2 parameters (4 B aligned to 4, 16 B aligned to 8)"
        );
    }

    #[test]
    fn all_kernels_of_the_library_are_its_entire_ptx() {
        let Ok(images) = crate::build_info::images() else { return };
        for image in images {
            let kernels = Ptx::parse(image.ptx).entries;
            let all: Vec<&'static str> = kernels.keys().map(|name| &*name.clone().leak()).collect();
            assert!(
                extract_kernels(image.ptx, &all).unwrap() == image.ptx,
                "the text for {} differs",
                image.arch
            );
        }
    }

    #[test]
    fn an_unknown_kernel_is_an_error_with_those_that_exist() {
        let text = ".visible .entry first() { ret; } .visible .entry second() { ret; }";
        let error = extract_kernels(text, &["first", "third"]).unwrap_err();
        assert!(
            matches!(error, Error::InvalidModule(InvalidModule::UnknownKernel { kernel: "third", .. })),
            "{error}"
        );
        assert!(error.to_string().contains("it has first, second"), "{error}");
        let error = extract_kernels("no PTX at all", &["first"]).unwrap_err();
        assert!(error.to_string().contains("no kernel at all"), "{error}");
    }
}
