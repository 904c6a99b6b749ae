//! The items that are written: orders of a shop, 1 KiB of believable JSON each.
//!
//! An item is made from its number alone, so that whoever knows how many there are can read any of them.
//! Making one is a copy of a template with three places filled in (well under 1 µs), because it happens
//! inside what is measured. Ids and partition keys are mixed: neighbours in time are not neighbours in
//! the index.

use headwater_runtime::Random;

/// Bytes of an item as it is sent.
pub(crate) const BODY_BYTES: usize = 1024;
/// Different texts; more than fit into one block of any store.
const TEMPLATES: u64 = 64;
/// Different partition keys.
const CUSTOMERS: u64 = 1 << 16;

const ID_DIGITS: usize = 16;
const CUSTOMER_DIGITS: usize = 8;
const REVISION_DIGITS: usize = 8;

const WORDS: &[&str] = &[
    "amber", "basin", "canvas", "copper", "delta", "ember", "fjord", "granite", "harbour",
    "indigo", "juniper", "kettle", "lantern", "meadow", "northern", "orchard", "pebble", "quarry",
    "ridge", "saddle", "timber", "umber", "valley", "willow", "yarrow", "zephyr", "bright", "slow",
    "narrow", "wide", "folded", "hollow", "painted", "quiet", "steady", "woven",
];
const CITIES: &[&str] = &["Bergen", "Ghent", "Lyon", "Porto", "Graz", "Turku", "Cork", "Zwolle"];
const STATES: &[&str] = &["placed", "paid", "packed", "shipped", "delivered", "returned"];

/// Where an item is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) customer: String,
    pub(crate) id: String,
}

impl Key {
    pub(crate) fn of(number: u64) -> Key {
        Key {
            customer: format!("customer-{:08x}", customer_number(number)),
            id: format!("{:016x}", mix(number)),
        }
    }

    /// Bytes of it, which every store keeps beside the body.
    pub(crate) fn byte_count() -> usize {
        "customer-".len() + CUSTOMER_DIGITS + ID_DIGITS
    }
}

/// Makes items.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    templates: Vec<Template>,
}

#[derive(Clone, Debug)]
struct Template {
    body: Vec<u8>,
    id_at: usize,
    customer_at: usize,
    revision_at: usize,
}

impl Workload {
    /// The same items in every run.
    pub(crate) fn new() -> Workload {
        let mut random = Random::seeded(1);
        Workload { templates: (0..TEMPLATES).map(|_| Template::new(&mut random)).collect() }
    }

    /// An item as it is after so many updates.
    pub(crate) fn body(&self, number: u64, revision: u64) -> Vec<u8> {
        let index = usize::try_from(number % TEMPLATES).unwrap_or(0);
        let template = &self.templates[index];
        let mut body = template.body.clone();
        write_hex(&mut body[template.id_at..][..ID_DIGITS], mix(number));
        let customer = customer_number(number);
        write_hex(&mut body[template.customer_at..][..CUSTOMER_DIGITS], customer);
        write_hex(&mut body[template.revision_at..][..REVISION_DIGITS], revision);
        body
    }
}

impl Template {
    fn new(random: &mut Random) -> Template {
        let mut text = String::from(r#"{"id":""#);
        let id_at = text.len();
        text.push_str(&"0".repeat(ID_DIGITS));
        text.push_str(r#"","customer":"customer-"#);
        let customer_at = text.len();
        text.push_str(&"0".repeat(CUSTOMER_DIGITS));
        text.push_str(r#"","revision":"r"#);
        let revision_at = text.len();
        text.push_str(&"0".repeat(REVISION_DIGITS));
        text.push_str(&format!(
            r#"","status":"{}","placed":"2026-{:02}-{:02}T{:02}:{:02}:00Z","total":{}.{:02},"#,
            random.pick(STATES),
            1 + random.below(12),
            1 + random.below(28),
            random.below(24),
            random.below(60),
            10 + random.below(990),
            random.below(100),
        ));
        text.push_str(&format!(
            r#""address":{{"name":"{} {}","street":"{} {} street","city":"{}","postcode":"{}"}},"lines":["#,
            random.pick(WORDS),
            random.pick(WORDS),
            1 + random.below(200),
            random.pick(WORDS),
            random.pick(CITIES),
            10_000 + random.below(90_000),
        ));
        for line in 0..4 {
            let comma = if line == 0 { "" } else { "," };
            text.push_str(&format!(
                r#"{comma}{{"sku":"HW-{:05}","name":"{} {}","quantity":{},"price":{}.{:02}}}"#,
                random.below(100_000),
                random.pick(WORDS),
                random.pick(WORDS),
                1 + random.below(9),
                1 + random.below(200),
                random.below(100),
            ));
        }
        text.push_str(r#"],"gift":false,"note":""#);
        // Words up to the last byte that is free.
        let end = BODY_BYTES - r#""}"#.len();
        while text.len() < end {
            text += *random.pick(WORDS);
            text.push(' ');
        }
        text.truncate(end);
        text.push_str(r#""}"#);
        Template { body: text.into_bytes(), id_at, customer_at, revision_at }
    }
}

fn customer_number(number: u64) -> u64 {
    mix(number % CUSTOMERS) >> 32
}

/// A permutation of all numbers (the end of SplitMix64), so that no two items get the same id.
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Fills `place` with the lowest hexadecimal digits of `value`.
fn write_hex(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

/// Every item twice, in a random order: the first is its create, the second its update.
///
/// Dead and live versions are then mixed all over the log, more dead ones in its older part, as in a
/// store that has been used. Updating all items after all were created would leave one half dead as a
/// whole, which any log skips for nothing.
pub(crate) fn creates_and_updates(items: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..items).chain(0..items).collect();
    let mut random = Random::seeded(2);
    for last in (1..order.len()).rev() {
        order.swap(last, random.index(last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn an_item_is_1_kib_of_json_with_the_key_of_its_number() {
        let workload = Workload::new();
        for number in [0, 1, 63, 64, 65_536, 9_999_999, u64::MAX] {
            let body = workload.body(number, 7);
            assert_eq!(body.len(), BODY_BYTES, "item {number}");
            let item: serde_json::Value = serde_json::from_slice(&body).expect("it is JSON");
            let key = Key::of(number);
            assert_eq!(item["id"], key.id.as_str());
            assert_eq!(item["customer"], key.customer.as_str());
            assert_eq!(item["revision"], "r00000007");
            assert_eq!(key.id.len() + key.customer.len(), Key::byte_count());
        }
    }

    #[test]
    fn ids_and_partition_keys_are_spread() {
        let ids: HashSet<String> = (0..10_000).map(|number| Key::of(number).id).collect();
        let customers: HashSet<String> =
            (0..10_000).map(|number| Key::of(number).customer).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(customers.len() > 9_900, "{} partition keys", customers.len());
    }

    #[test]
    fn every_item_comes_twice() {
        let mut order = creates_and_updates(1000);
        assert_ne!(order[..1000], (0..1000).collect::<Vec<u64>>()[..]);
        order.sort_unstable();
        let expected: Vec<u64> = (0..1000).flat_map(|number| [number, number]).collect();
        assert_eq!(order, expected);
    }
}
