//! Cubins: PTX that NVIDIA's assembler has compiled for one architecture, with a seal that names
//! the PTX.
//!
//! ```text
//!   ELF ... | hash of the PTX, 8 bytes | architecture, 8 bytes | MAGIC, 16 bytes
//! ```
//!
//! Readers of ELF ignore what follows the ELF: `nvdisasm` and `nvlink` accept a file with a seal.

/// The end of each seal. The number is the version of its layout.
const MAGIC: [u8; 16] = *b"warpheap-cubin-1";

/// Where a seal has its parts.
const SEAL: usize = 32;
const ARCH: usize = 8;
const END: usize = 16;

/// The start of an ELF.
const ELF: [u8; 4] = *b"\x7fELF";

/// A cubin without its seal, and what the seal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubin<'a> {
    /// What the driver loads.
    pub elf: &'a [u8],
    /// The architecture: `sm_90`.
    pub arch: &'a str,
    hash: u64,
}

/// `elf`, compiled from `ptx` for `arch`, with a seal. The name of an architecture has at most
/// eight bytes.
pub fn sealed(mut elf: Vec<u8>, ptx: &str, arch: &str) -> Vec<u8> {
    let mut name = [0; END - ARCH];
    name[..arch.len()].copy_from_slice(arch.as_bytes());
    elf.extend(hash(ptx).to_le_bytes());
    elf.extend(name);
    elf.extend(MAGIC);
    elf
}

impl<'a> Cubin<'a> {
    /// Reads a cubin. `None` if the bytes are not an ELF with a seal.
    pub fn read(bytes: &'a [u8]) -> Option<Cubin<'a>> {
        let (elf, seal) = bytes.split_at_checked(bytes.len().checked_sub(SEAL)?)?;
        let (hash, name) = (seal[..ARCH].try_into().ok()?, &seal[ARCH..END]);
        let arch = str::from_utf8(name).ok()?.trim_end_matches('\0');
        let is_cubin = seal[END..] == MAGIC && elf.starts_with(&ELF);
        is_cubin.then_some(Cubin { elf, arch, hash: u64::from_le_bytes(hash) })
    }

    /// Whether it was compiled from `ptx`.
    pub fn is_of(&self, ptx: &str) -> bool {
        self.hash == hash(ptx)
    }

    /// Whether a GPU of this compute capability should run it: one of the same major capability and
    /// at least the same minor one. An architecture with the suffix `a` runs on its own GPUs only.
    pub fn runs_on(&self, (major, minor): (u32, u32)) -> bool {
        let digits = self.arch.trim_start_matches("sm_");
        let number = digits.trim_end_matches(['a', 'f']).parse::<u32>();
        number.is_ok_and(|number| match digits.ends_with('a') {
            true => number == 10 * major + minor,
            false => number / 10 == major && number % 10 <= minor,
        })
    }
}

/// FNV-1a of 64 bits: it tells versions of a text apart, and protects against no adversary.
fn hash(text: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 7.0\n";

    fn cubin(arch: &str) -> Vec<u8> {
        sealed(b"\x7fELF and more".to_vec(), PTX, arch)
    }

    #[test]
    fn a_seal_names_ptx_and_architecture() {
        let bytes = cubin("sm_100f");
        let cubin = Cubin::read(&bytes).unwrap();
        assert_eq!((cubin.elf, cubin.arch), (&b"\x7fELF and more"[..], "sm_100f"));
        assert!(cubin.is_of(PTX) && !cubin.is_of(".version 7.1\n"));
    }

    #[test]
    fn other_bytes_are_no_cubins() {
        let (bytes, mut other) = (cubin("sm_90"), cubin("sm_90"));
        for len in 0..bytes.len() {
            assert_eq!(Cubin::read(&bytes[..len]), None, "{len}");
        }
        other[1] = b'F';
        assert_eq!(Cubin::read(&other), None);
    }

    #[test]
    fn the_hash_is_that_of_its_definition() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn gpus_run_cubins_of_their_major_capability() {
        for (arch, runs, rejects) in [
            ("sm_80", vec![(8, 0), (8, 6), (8, 9)], vec![(7, 5), (9, 0), (12, 0)]),
            ("sm_86", vec![(8, 6), (8, 9)], vec![(8, 0)]),
            ("sm_90a", vec![(9, 0)], vec![(8, 0), (9, 1), (10, 0)]),
            ("sm_100f", vec![(10, 0), (10, 3)], vec![(9, 0), (12, 0)]),
            ("sm_120", vec![(12, 0), (12, 1)], vec![(10, 0), (2, 0)]),
            ("", vec![], vec![(9, 0)]),
        ] {
            let bytes = cubin(arch);
            let cubin = Cubin::read(&bytes).unwrap();
            assert!(runs.iter().all(|capability| cubin.runs_on(*capability)), "{arch}");
            assert!(!rejects.iter().any(|capability| cubin.runs_on(*capability)), "{arch}");
        }
    }
}
