//! Cubins: machine code that NVIDIA's assembler has made of PTX for one architecture, with a
//! trailer that names the PTX.
//!
//! ```text
//!   ELF ... | hash of the ELF | hash of the PTX | architecture | MAGIC
//!             8 bytes         | 8 bytes         | 8 bytes      | 16 bytes
//! ```
//!
//! Readers of ELF ignore what follows the ELF: `nvdisasm` and `nvlink` accept a file with a
//! trailer.

/// The end of each trailer. The number is the version of its layout.
const MAGIC: [u8; 16] = *b"warpheap-cubin-2";

/// Where a trailer has its parts.
const TRAILER: usize = 40;
const OF_PTX: usize = 8;
const ARCH: usize = 16;
const END: usize = 24;

/// The header of an ELF of 64 bits: its size, its first bytes, and where it names the machine.
const HEADER: usize = 64;
const ELF: [u8; 5] = *b"\x7fELF\x02";
const MACHINE: usize = 18;
/// `EM_CUDA`.
const CUDA: [u8; 2] = 190_u16.to_le_bytes();

/// A cubin without its trailer, and what the trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubin<'a> {
    /// What the driver loads.
    pub elf: &'a [u8],
    /// The architecture: `sm_90`.
    pub arch: &'a str,
    of_ptx: u64,
}

/// `elf`, compiled from `ptx` for `arch`, with a trailer.
///
/// # Panics
/// If the name of the architecture has more than eight bytes.
pub fn with_trailer(mut elf: Vec<u8>, ptx: &str, arch: &str) -> Vec<u8> {
    let mut name = [0; END - ARCH];
    name[..arch.len()].copy_from_slice(arch.as_bytes());
    elf.extend(hash(&elf).to_le_bytes());
    elf.extend(hash(ptx.as_bytes()).to_le_bytes());
    elf.extend(name);
    elf.extend(MAGIC);
    elf
}

impl<'a> Cubin<'a> {
    /// Reads a cubin. `None` if the bytes are not the ELF of a GPU with a trailer, or if a byte of
    /// the ELF has changed.
    pub fn read(bytes: &'a [u8]) -> Option<Cubin<'a>> {
        let (elf, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER)?)?;
        let number = |from: usize| Some(u64::from_le_bytes(trailer[from..from + 8].try_into().ok()?));
        let arch = str::from_utf8(&trailer[ARCH..END]).ok()?.trim_end_matches('\0');
        let is_cubin = trailer[END..] == MAGIC
            && elf.len() >= HEADER
            && elf.starts_with(&ELF)
            && elf[MACHINE..].starts_with(&CUDA)
            && hash(elf) == number(0)?;
        is_cubin.then_some(Cubin { elf, arch, of_ptx: number(OF_PTX)? })
    }

    /// Whether it was compiled from `ptx`.
    pub fn is_of(&self, ptx: &str) -> bool {
        self.of_ptx == hash(ptx.as_bytes())
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

/// FNV-1a of 64 bits: it finds accidental changes, not those of an adversary.
fn hash(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 7.0\n";

    /// The header of an ELF for a GPU, and some more bytes.
    fn elf() -> Vec<u8> {
        let mut elf = vec![0; HEADER + 10];
        elf[..ELF.len()].copy_from_slice(&ELF);
        elf[MACHINE..][..CUDA.len()].copy_from_slice(&CUDA);
        elf
    }

    fn cubin(arch: &str) -> Vec<u8> {
        with_trailer(elf(), PTX, arch)
    }

    #[test]
    fn a_trailer_names_ptx_and_architecture() {
        let bytes = cubin("sm_100f");
        let cubin = Cubin::read(&bytes).unwrap();
        assert_eq!((cubin.elf, cubin.arch), (&elf()[..], "sm_100f"));
        assert!(cubin.is_of(PTX) && !cubin.is_of(".version 7.1\n"));
    }

    #[test]
    fn incomplete_and_changed_files_are_no_cubins() {
        let whole = cubin("sm_90");
        for len in 0..whole.len() {
            assert_eq!(Cubin::read(&whole[..len]), None, "{len}");
        }
        for position in 0..HEADER + 10 {
            let mut changed = whole.clone();
            changed[position] ^= 1;
            assert_eq!(Cubin::read(&changed), None, "{position}");
        }
        let short = with_trailer(elf()[..HEADER - 1].to_vec(), PTX, "sm_90");
        assert_eq!(Cubin::read(&short), None);
        let mut of_cpu = elf();
        of_cpu[MACHINE] = 62;
        assert_eq!(Cubin::read(&with_trailer(of_cpu, PTX, "sm_90")), None);
    }

    #[test]
    fn the_hash_is_that_of_its_definition() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
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
