//! The PTX of a module, compared with what the program declares.
//!
//! Zero-sized parameters do not exist in PTX, so [`signature`] removes them from the program's
//! parameters.

use crate::error::{InvalidModule, Result};
use warpheap_device::kernel;
pub use warpheap_ptx::link_inputs;
use warpheap_ptx::{Cubin, Param, UnknownKernel};
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

/// The cubins of `ptx`, without those that are empty. Fails if one is no cubin, or is of other PTX.
pub(crate) fn checked_cubins<'a>(ptx: &str, cubins: &[&'a [u8]]) -> Result<Vec<Cubin<'a>>> {
    let given = cubins.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
    given
        .map(|(position, bytes)| {
            let cubin = Cubin::read(bytes).ok_or(InvalidModule::NoCubin { position })?;
            match cubin.is_of(ptx) {
                true => Ok(cubin),
                false => Err(InvalidModule::CubinOfOtherPtx { arch: cubin.arch.into() }.into()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use warpheap_ptx::with_trailer;

    const PTX: &str = ".version 7.0\n.target sm_70\n";

    #[test]
    fn cubins_of_other_ptx_and_other_files_are_errors() {
        let elf = || [&b"\x7fELF\x02"[..], &[0; 13], &190_u16.to_le_bytes(), &[0; 44]].concat();
        let (fine, other) =
            (with_trailer(elf(), PTX, "sm_90"), with_trailer(elf(), ".version 7.1\n", "sm_80"));
        assert_eq!(checked_cubins(PTX, &[&[], &fine]).unwrap().len(), 1);
        assert_eq!(checked_cubins("", &[&[]]).unwrap().len(), 0);
        let error = checked_cubins(PTX, &[&fine, &other]).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidModule(InvalidModule::CubinOfOtherPtx { arch }) if arch == "sm_80"),
            "{error}"
        );
        let error = checked_cubins(PTX, &[&[], b"\x7fELF without a trailer"]).unwrap_err();
        assert!(matches!(error, Error::InvalidModule(InvalidModule::NoCubin { position: 1 })), "{error}");
    }

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
