//! MurmurHash3, the hash Cosmos DB places items with.
//!
//! Not a dependency: the two variants have forty lines each, they decide the partition of every stored item,
//! and they must never change. They do not resist an attacker who chooses colliding keys.

/// The 32-bit variant for x86, used by version 1 partition keys.
pub fn x86_32(bytes: &[u8], seed: u32) -> u32 {
    const C1: u32 = 0xCC9E_2D51;
    const C2: u32 = 0x1B87_3593;
    let scramble = |block: u32| block.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);

    let mut hash = seed;
    let (blocks, tail) = bytes.as_chunks::<4>();
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64);
    }
    if !tail.is_empty() {
        let mut block = [0; 4];
        block[..tail.len()].copy_from_slice(tail);
        hash ^= scramble(u32::from_le_bytes(block));
    }

    // The reference implementation takes the length as a 32-bit number as well.
    hash ^= length_32(bytes);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85EB_CA6B);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xC2B2_AE35);
    hash ^ (hash >> 16)
}

/// The 128-bit variant for x64, used by version 2 partition keys. Returns its two halves.
pub fn x64_128(bytes: &[u8], seed: u64) -> (u64, u64) {
    const C1: u64 = 0x87C3_7B91_1142_53D5;
    const C2: u64 = 0x4CF5_AD43_2745_937F;
    let scramble_1 = |block: u64| block.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let scramble_2 = |block: u64| block.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);

    let (mut h1, mut h2) = (seed, seed);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let (k1, k2) = halves(block);
        h1 ^= scramble_1(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= scramble_2(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    if !tail.is_empty() {
        // The missing bytes count as zero, and a zero half scrambles to zero: no case for each length.
        let mut block = [0; 16];
        block[..tail.len()].copy_from_slice(tail);
        let (k1, k2) = halves(&block);
        h1 ^= scramble_1(k1);
        h2 ^= scramble_2(k2);
    }

    let length = bytes.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish_64(h1);
    h2 = finish_64(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2)
}

fn finish_64(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ (hash >> 33)
}

fn halves(block: &[u8; 16]) -> (u64, u64) {
    let number = u128::from_le_bytes(*block);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    (number as u64, (number >> 64) as u64)
}

#[expect(clippy::cast_possible_truncation, reason = "the algorithm is defined modulo 2^32")]
fn length_32(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published values of the reference implementation.
    #[test]
    fn known_32_bit_hashes() {
        for (text, seed, expected) in [
            ("", 0, 0),
            ("", 1, 0x514E_28B7),
            ("", 0xFFFF_FFFF, 0x81F1_6F39),
            ("test", 0, 0xBA6B_D213),
            ("test", 0x9747_B28C, 0x704B_81DC),
            ("Hello, world!", 0, 0xC036_3E43),
            ("Hello, world!", 0x9747_B28C, 0x2488_4CBA),
            ("The quick brown fox jumps over the lazy dog", 0, 0x2E4F_F723),
            ("The quick brown fox jumps over the lazy dog", 0x9747_B28C, 0x2FA8_26CD),
        ] {
            assert_eq!(x86_32(text.as_bytes(), seed), expected, "{text:?} with seed {seed:#x}");
        }
    }

    #[test]
    fn known_128_bit_hashes() {
        for (text, expected) in [
            ("", (0, 0)),
            ("hello", (0xCBD8_A7B3_41BD_9B02, 0x5B1E_906A_48AE_1D19)),
            ("hello, world", (0x342F_AC62_3A5E_BC8E, 0x4CDC_BC07_9642_414D)),
            (
                "The quick brown fox jumps over the lazy dog.",
                (0xCD99_481F_9EE9_02C9, 0x695D_A1A3_8987_B6E7),
            ),
        ] {
            assert_eq!(x64_128(text.as_bytes(), 0), expected, "{text:?}");
        }
    }

    /// The reference code has a separate path for each tail length; no two hashes may be equal.
    #[test]
    fn lengths_around_a_block_differ() {
        let bytes = [0u8; 40];
        let mut seen_32: Vec<_> = (0..40).map(|n| x86_32(&bytes[..n], 7)).collect();
        let mut seen_128: Vec<_> = (0..40).map(|n| x64_128(&bytes[..n], 7)).collect();
        seen_32.sort_unstable();
        seen_32.dedup();
        seen_128.sort_unstable();
        seen_128.dedup();
        assert_eq!((seen_32.len(), seen_128.len()), (40, 40));
    }
}
