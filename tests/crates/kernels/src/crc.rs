//! Checksums by polynomials.

use crate::{Random, Sum};
use crc::{CRC_8_SMBUS, CRC_16_IBM_SDLC, CRC_32_ISCSI, CRC_64_XZ, Crc};

const CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Four polynomials; one with a table that the compiler makes, in parts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let bytes = random.bytes(300);
    sum.add(CRC32.checksum(&bytes).into());
    sum.add(Crc::<u64>::new(&CRC_64_XZ).checksum(&bytes));
    sum.add(Crc::<u16>::new(&CRC_16_IBM_SDLC).checksum(&bytes).into());
    sum.add(Crc::<u8>::new(&CRC_8_SMBUS).checksum(&bytes).into());
    let mut digest = CRC32.digest();
    for part in bytes.chunks(7) {
        digest.update(part);
    }
    sum.add(digest.finalize().into());
    sum.finish()
}
