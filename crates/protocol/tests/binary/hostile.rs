//! Feeds malicious bytes to the binary codec: no panic, no unbounded output, and never another value than the
//! client's own codec reads.

use crate::values::{ROOM, as_doubles, decoded, hex};
use azure_data_cosmos_driver::binary_json as sdk;
use headwater_protocol::binary::{BinaryError, Limits, NESTING_MAX, decode, encode};

const TEXT_BYTES_MAX: usize = 4096;
const ROUNDS: u64 = 60_000;

/// A small seeded generator: the same bytes on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }

    fn mutate(&mut self, body: &mut Vec<u8>) {
        let place = 1 + self.below(body.len());
        match self.below(6) {
            0 => body.truncate(place),
            1 => body.insert(place.min(body.len()), self.byte()),
            2 if place < body.len() => drop(body.remove(place)),
            3 if place < body.len() => body[place] ^= 1 << self.below(8),
            4 => {
                let copied = body[..place.min(body.len())].to_vec();
                body.extend(copied);
            }
            _ if place < body.len() => body[place] = self.byte(),
            _ => {}
        }
    }
}

/// Bodies that together contain every kind of value.
fn seeds() -> Vec<Vec<u8>> {
    let text =
        r#"{"id":"a","n":[1,300,-5,1.5,70000,9e99],"o":{"_etag":"x","t":[true,null,{}]},"s":"é"}"#;
    let forms = [
        "80 e2 05 82 68 69 c3 03",
        "80 ea 05 82 68 69 c4 03 00",
        "80 f0 d7 04 01 02 03 04",
        "80 f1 cd 02 00 00 00 c0 3f 00 00 c0 3f",
        "80 f2 f0 d9 02 02 01 00 02 00 03 00 04 00",
        "80 f3 f1 d7 02 00 01 00 01 02",
        "80 e5 13 03 71 01 01 68 69 78 03 0f 0a 7a 05 e1 2b 0f 7e 02 e8 34 d0",
        "80 e2 0b 7b 04 61 10 32 7c 04 61 20 88 01",
        "80 e1 77 00 00 84 21 00 00 20 00 00 00 a6 f7 9a a8 00 00",
        "80 e9 2c d3 33 22 11 00 55 44 77 66 88 99 aa bb cc dd ee ff",
        "80 e4 04 00 00 00 dd 02 68 69",
        "80 e1 e1 e1 e1 e9 2c e9 2c e2 00",
    ];
    let mut seeds: Vec<Vec<u8>> = forms.map(hex).into();
    seeds.push(encode(text.as_bytes()).expect("valid text"));
    seeds.push(sdk::transcode_to_binary(text.as_bytes()).expect("valid text"));
    seeds
}

#[test]
fn mutated_bodies_neither_panic_nor_exceed_the_limit_nor_mean_something_else() {
    let seeds = seeds();
    let limits = Limits { nesting_max: 32, text_bytes_max: TEXT_BYTES_MAX };
    let mut both_read = 0;
    for round in 1..=ROUNDS {
        let mut dice = Dice(round.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut body = seeds[dice.below(seeds.len())].clone();
        for _ in 0..=dice.below(4) {
            dice.mutate(&mut body);
        }
        let Ok(text) = decode(&body, limits) else { continue };
        assert!(text.len() <= TEXT_BYTES_MAX, "round {round}: {body:02x?}");
        let ours: serde_json::Value = serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("round {round}: {error} in {body:02x?}"));
        if let Ok(theirs) = sdk::decode(&body) {
            assert_eq!(as_doubles(ours), as_doubles(theirs), "round {round}: {body:02x?}");
            both_read += 1;
        }
    }
    assert!(both_read > ROUNDS / 20, "only {both_read} bodies were read: the test has no teeth");
}

#[test]
fn random_bytes_never_panic_in_either_direction() {
    for round in 1..=ROUNDS {
        let mut dice = Dice(round.wrapping_mul(0xD129_0B26_8899_55A7));
        let mut body: Vec<u8> = (0..dice.below(48)).map(|_| dice.byte()).collect();
        let _ = encode(&body);
        body.insert(0, 0x80);
        let _ = decode(&body, ROOM);
    }
}

#[test]
fn nesting_ends_at_the_limit_in_every_form() {
    let limit = NESTING_MAX;
    let too_deep = Err(BinaryError::TooDeep { limit });
    let nested = |opening: &[u8], levels: usize, innermost: &[u8]| {
        let mut body = vec![0x80];
        body.extend(opening.repeat(levels));
        body.extend(innermost);
        decode(&body, ROOM)
    };
    for opening in [&[0xE1][..], &[0xE9, 0x2C]] {
        assert!(nested(opening, limit, &[0x00]).is_ok());
        assert_eq!(nested(opening, limit + 1, &[0x00]), too_deep);
        assert_eq!(nested(opening, 10_000_000, &[0x00]), too_deep);
    }
    assert!(nested(&[0xE1], limit - 1, &[0xE0]).is_ok());
    assert_eq!(nested(&[0xE1], limit, &[0xE0]), too_deep);
    assert_eq!(nested(&[0xE1], limit, &[0xF0, 0xD7, 0]), too_deep);
    assert_eq!(nested(&[0xE1], limit - 1, &[0xF2, 0xF0, 0xD7, 0, 0]), too_deep);
    for text in ["[".repeat(limit + 1), r#"{"a":"#.repeat(limit + 1), "[".repeat(1_000_000)] {
        assert_eq!(encode(text.as_bytes()), too_deep);
    }
}

#[test]
fn a_few_bytes_cannot_unfold_past_the_limit() {
    let limits = Limits::of_text_bytes(1 << 20);
    let too_large = Err(BinaryError::TooLarge { limit: 1 << 20 });
    let length = |body: &[u8]| decode(body, limits).map(|text| text.len());

    // One long string and two thousand references to it would decode to 120 megabytes.
    let mut references = hex("80 e4");
    references.extend(u32::to_le_bytes(3 + 60_000 + 2000 * 2));
    references.extend([0xC1, 0x60, 0xEA]);
    references.extend([b'x'; 60_000]);
    references.extend([0xC3, 0x06].repeat(2000));
    assert_eq!(length(&references), too_large);

    // Seven bytes encode 65 535 empty arrays.
    let mut empty_arrays = hex("80 e3 5e 01");
    empty_arrays.extend(hex("f3 f1 d7 00 00 ff ff").repeat(50));
    assert_eq!(length(&empty_arrays), too_large);

    // Lengths beyond the end of the body must not reserve memory.
    for body in ["80 c2 ff ff ff ff", "80 e7 ff ff ff ff ff ff ff ff", "80 df ff ff ff ff"] {
        assert_eq!(length(&hex(body)), Err(BinaryError::Truncated { at: 1 }));
    }
    let counted = decoded(&hex("80 f1 db ff ff"));
    assert_eq!(counted, Err(BinaryError::Truncated { at: 1 }));
}
