//! The ids of resources in a container: items, ranges, scripts, conflicts, and attachments.
//!
//! Their numbers are little-endian and increase within a partition, because SDKs break ties of a sorted
//! cross-partition query by that number. This file never assigns numbers.

use super::text::text_form;
use super::{BadRid, ContainerRid, exactly};

/// Numbers have 60 bits; the four above them are the kind.
const NUMBER_BITS: u32 = 60;

/// The kind of a resource in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// An item.
    Document,
    /// A conflict.
    Conflict,
    /// A range of partition keys.
    PartitionKeyRange,
    /// A user-defined function.
    Udf,
    /// A trigger.
    Trigger,
    /// A stored procedure.
    Sproc,
}

impl ResourceKind {
    /// The four bits that encode the kind.
    pub const fn nibble(self) -> u8 {
        match self {
            ResourceKind::Document => 0,
            ResourceKind::Conflict => 4,
            ResourceKind::PartitionKeyRange => 5,
            ResourceKind::Udf => 6,
            ResourceKind::Trigger => 7,
            ResourceKind::Sproc => 8,
        }
    }

    /// Decodes the four bits of a kind.
    pub const fn from_nibble(nibble: u8) -> Result<ResourceKind, BadRid> {
        match nibble {
            0 => Ok(ResourceKind::Document),
            4 => Ok(ResourceKind::Conflict),
            5 => Ok(ResourceKind::PartitionKeyRange),
            6 => Ok(ResourceKind::Udf),
            7 => Ok(ResourceKind::Trigger),
            8 => Ok(ResourceKind::Sproc),
            _ => Err(BadRid::UnknownKind { nibble }),
        }
    }
}

/// The id of any resource in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceRid {
    /// The container it is in.
    pub container: ContainerRid,
    /// Its kind.
    pub kind: ResourceKind,
    /// Its number among its kind, below 2^60.
    pub number: u64,
}

impl ResourceRid {
    /// The resource of this kind with this number, which must be below 2^60.
    pub const fn new(container: ContainerRid, kind: ResourceKind, number: u64) -> ResourceRid {
        ResourceRid { container, kind, number }
    }

    /// The 16 bytes of the id.
    ///
    /// # Panics
    ///
    /// If the number needs more than 60 bits: it would run into the kind.
    pub fn to_bytes(&self) -> [u8; 16] {
        assert!(self.number >> NUMBER_BITS == 0, "a resource number has at most 60 bits");
        let kind = u64::from(self.kind.nibble()) << NUMBER_BITS;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.container.to_bytes());
        bytes[8..].copy_from_slice(&(kind | self.number).to_le_bytes());
        bytes
    }

    /// Reads the 16 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<ResourceRid, BadRid> {
        let wrong = BadRid::WrongResource { expected: "a resource in a container" };
        let (container, number) = bytes.split_at_checked(8).ok_or(wrong.clone())?;
        let container = ContainerRid::from_bytes(container).map_err(|_| wrong)?;
        let number = u64::from_le_bytes(exactly(number, "a resource in a container")?);
        let kind = ResourceKind::from_nibble((number >> NUMBER_BITS) as u8)?;
        Ok(ResourceRid { container, kind, number: number & ((1 << NUMBER_BITS) - 1) })
    }
}

/// Defines the id type for resources of one kind.
macro_rules! resource_of_kind {
    ($(#[$doc:meta])* $name:ident, $kind:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The container it is in.
            pub container: ContainerRid,
            /// Its number, below 2^60.
            pub number: u64,
        }

        impl $name {
            /// The id with this number, which must be below 2^60.
            pub const fn new(container: ContainerRid, number: u64) -> $name {
                $name { container, number }
            }

            /// The 16 bytes of the id.
            ///
            /// # Panics
            ///
            /// If the number needs more than 60 bits: it would run into the kind.
            pub fn to_bytes(&self) -> [u8; 16] {
                ResourceRid::from(*self).to_bytes()
            }

            /// Reads the 16 bytes of the id.
            pub fn from_bytes(bytes: &[u8]) -> Result<$name, BadRid> {
                ResourceRid::from_bytes(bytes)?.try_into()
            }
        }

        impl From<$name> for ResourceRid {
            fn from(rid: $name) -> ResourceRid {
                ResourceRid::new(rid.container, ResourceKind::$kind, rid.number)
            }
        }

        impl TryFrom<ResourceRid> for $name {
            type Error = BadRid;

            fn try_from(rid: ResourceRid) -> Result<$name, BadRid> {
                match rid.kind {
                    ResourceKind::$kind => Ok($name::new(rid.container, rid.number)),
                    _ => Err(BadRid::WrongResource { expected: $expected }),
                }
            }
        }
    };
}

resource_of_kind!(
    /// The id of an item.
    ItemRid,
    Document,
    "an item"
);

resource_of_kind!(
    /// The id of a range of partition keys, as `pkranges` lists it.
    PartitionRangeRid,
    PartitionKeyRange,
    "a partition key range"
);

/// The id of an attachment of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentRid {
    /// The item it belongs to.
    pub item: ItemRid,
    /// Its number.
    pub number: u32,
}

impl AttachmentRid {
    /// The attachment with this number.
    pub const fn new(item: ItemRid, number: u32) -> AttachmentRid {
        AttachmentRid { item, number }
    }

    /// The 20 bytes of the id.
    pub fn to_bytes(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&self.item.to_bytes());
        bytes[16..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads the 20 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<AttachmentRid, BadRid> {
        let wrong = BadRid::WrongResource { expected: "an attachment" };
        let (item, number) = bytes.split_at_checked(16).ok_or(wrong)?;
        let number = u32::from_be_bytes(exactly(number, "an attachment")?);
        Ok(AttachmentRid { item: ItemRid::from_bytes(item)?, number })
    }
}

text_form!(ResourceRid, ItemRid, PartitionRangeRid, AttachmentRid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_format_the_same_in_both_ways() {
        let rid = ItemRid::new(ContainerRid::new(1, 1), 15);
        let mut text = b"_rid:".to_vec();
        rid.write_base64(&mut text);
        assert_eq!(text, b"_rid:AAAAAYAAAAEPAAAAAAAAAA==");
        assert_eq!(rid.to_string(), "AAAAAYAAAAEPAAAAAAAAAA==");
        assert_eq!(format!("{rid:>26}"), "  AAAAAYAAAAEPAAAAAAAAAA==");
    }

    #[test]
    fn every_kind_comes_back() {
        let known = (0..16).filter_map(|nibble| ResourceKind::from_nibble(nibble).ok());
        assert!(known.map(ResourceKind::nibble).eq([0, 4, 5, 6, 7, 8]));
    }

    #[test]
    fn the_largest_number_does_not_touch_the_kind() {
        let rid = PartitionRangeRid::new(ContainerRid::new(1, 1), (1 << 60) - 1);
        assert_eq!(rid.to_bytes()[15], 0x5F);
        assert_eq!(PartitionRangeRid::from_bytes(&rid.to_bytes()), Ok(rid));
    }

    #[test]
    #[should_panic(expected = "at most 60 bits")]
    fn a_number_that_touches_the_kind_is_a_mistake() {
        let _ = ItemRid::new(ContainerRid::new(1, 1), 1 << 60).to_bytes();
    }
}
