//! Resource ids (`_rid`): the binary ids that the system assigns to databases, containers, items and the rest.
//!
//! ```text
//! bytes  0        4        8                16       20
//!        database                                           4 bytes
//!        database container                                 8, top bit of byte 4 set
//!        database user                                      8, top bit of byte 4 clear
//!        database container number+kind                    16, number little-endian, kind in
//!                                                              the high nibble of byte 15
//!        database user     permission                      16, little-endian
//!        database 0        number  2                       16, a client encryption key, little-endian
//!        database container number         attachment      20
//! offer                                                     3, little-endian
//! ```
//!
//! The text form is padded base64 with `-` in place of `/`. Texts and values correspond one to one, so either
//! may be compared.
//!
//! This module never assigns numbers; the catalog and the partitions do.

mod children;
mod owners;
mod text;

pub use children::{AttachmentRid, ItemRid, PartitionRangeRid, ResourceKind, ResourceRid};
pub use owners::{
    ClientEncryptionKeyRid, ContainerRid, DatabaseRid, OfferRid, PermissionRid, UserRid,
};

use text::{BYTES_MAX, text_form};

/// Set in the first byte of a container's number and clear in a user's.
const CONTAINER_BIT: u32 = 1 << 31;

/// Why something is not a resource id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRid {
    /// Not base64 with this alphabet and padding.
    #[error("resource id is not base64 with - for /; copy it from a `_rid` property")]
    NotBase64,
    /// No resource has an id of this length.
    #[error("resource id has {bytes} bytes, which no resource has; copy it from a `_rid` property")]
    Length {
        /// How many bytes it has.
        bytes: usize,
    },
    /// The id of a resource of another type than expected.
    #[error("resource id is not that of {expected}; use the `_rid` of {expected}")]
    WrongResource {
        /// The expected type, with its article.
        expected: &'static str,
    },
    /// A resource in a container with an unknown kind.
    #[error(
        "resource id has kind {nibble:#x}, which does not exist; copy it from a `_rid` property"
    )]
    UnknownKind {
        /// The high nibble of the last byte.
        nibble: u8,
    },
}

/// The id of any resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceId {
    /// A throughput offer.
    Offer(OfferRid),
    /// A database.
    Database(DatabaseRid),
    /// A user of a database.
    User(UserRid),
    /// A container.
    Container(ContainerRid),
    /// A permission of a user.
    Permission(PermissionRid),
    /// A client encryption key of a database.
    ClientEncryptionKey(ClientEncryptionKeyRid),
    /// An item, script, range or conflict in a container.
    Resource(ResourceRid),
    /// An attachment of an item.
    Attachment(AttachmentRid),
}

/// The bytes of a resource id, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes {
    buffer: [u8; BYTES_MAX],
    length: usize,
}

impl Bytes {
    fn new(bytes: &[u8]) -> Bytes {
        let mut buffer = [0; BYTES_MAX];
        buffer[..bytes.len()].copy_from_slice(bytes);
        Bytes { buffer, length: bytes.len() }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl ResourceId {
    /// Reads the bytes of any resource id. Their length and kind bits determine the type of resource.
    pub fn from_bytes(bytes: &[u8]) -> Result<ResourceId, BadRid> {
        let in_container = bytes.get(4).is_some_and(|byte| byte & 0x80 != 0);
        match (bytes.len(), in_container) {
            (3, _) => OfferRid::from_bytes(bytes).map(ResourceId::Offer),
            (4, _) => DatabaseRid::from_bytes(bytes).map(ResourceId::Database),
            (8, false) => UserRid::from_bytes(bytes).map(ResourceId::User),
            (8, true) => ContainerRid::from_bytes(bytes).map(ResourceId::Container),
            (16, false) => match ClientEncryptionKeyRid::from_bytes(bytes) {
                Ok(key) => Ok(ResourceId::ClientEncryptionKey(key)),
                Err(_) => PermissionRid::from_bytes(bytes).map(ResourceId::Permission),
            },
            (16, true) => ResourceRid::from_bytes(bytes).map(ResourceId::Resource),
            (20, _) => AttachmentRid::from_bytes(bytes).map(ResourceId::Attachment),
            (length, _) => Err(BadRid::Length { bytes: length }),
        }
    }

    /// The bytes of the id.
    pub fn to_bytes(&self) -> impl AsRef<[u8]> + use<> {
        match self {
            ResourceId::Offer(rid) => Bytes::new(&rid.to_bytes()),
            ResourceId::Database(rid) => Bytes::new(&rid.to_bytes()),
            ResourceId::User(rid) => Bytes::new(&rid.to_bytes()),
            ResourceId::Container(rid) => Bytes::new(&rid.to_bytes()),
            ResourceId::Permission(rid) => Bytes::new(&rid.to_bytes()),
            ResourceId::ClientEncryptionKey(rid) => Bytes::new(&rid.to_bytes()),
            ResourceId::Resource(rid) => Bytes::new(&rid.to_bytes()),
            ResourceId::Attachment(rid) => Bytes::new(&rid.to_bytes()),
        }
    }
}

text_form!(ResourceId);

/// Converts to exactly `N` bytes, or returns `WrongResource`.
fn exactly<const N: usize>(bytes: &[u8], expected: &'static str) -> Result<[u8; N], BadRid> {
    bytes.try_into().map_err(|_| BadRid::WrongResource { expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: std::fmt::Debug + PartialEq>(got: Result<T, BadRid>, expected: BadRid) {
        assert_eq!(got, Err(expected));
    }

    /// What is accepted is in `tests/vectors/rid.json`.
    #[test]
    fn refused_texts() {
        let parse = ResourceId::parse;
        check(parse("AAAAAQ"), BadRid::NotBase64); // padding missing
        check(parse("AAAAAR=="), BadRid::NotBase64); // bits that mean nothing
        check(parse("AAAA/w=="), BadRid::NotBase64);
        check(parse("AAAA_w=="), BadRid::NotBase64);
        check(parse("AAAA w=="), BadRid::NotBase64);
        check(parse("é"), BadRid::NotBase64);
        check(parse(&"A".repeat(32)), BadRid::NotBase64);
        check(parse(""), BadRid::Length { bytes: 0 });
        check(parse("AA=="), BadRid::Length { bytes: 1 });
        check(parse("AAAAAYAA"), BadRid::Length { bytes: 6 });
        check(parse("AAAAAYAAAAEDAAAAAAAAEA=="), BadRid::UnknownKind { nibble: 1 });
        check(parse("AAAAAYAAAAEDAAAAAAAA8A=="), BadRid::UnknownKind { nibble: 0xF });
    }

    #[test]
    fn each_type_refuses_the_ids_of_the_others() {
        let refused = |expected| BadRid::WrongResource { expected };
        check(DatabaseRid::parse("AAAAAYAAAAE="), refused("a database"));
        check(ContainerRid::parse("AAAAAQ=="), refused("a container"));
        check(ContainerRid::parse("AAAAAQAAAAU="), refused("a container"));
        check(UserRid::parse("AAAAAYAAAAE="), refused("a user"));
        check(PermissionRid::parse("AAAAAYAAAAEBAAAAAAAAAA=="), refused("a permission"));
        check(ItemRid::parse("AAAAAYAAAAEDAAAAAAAAUA=="), refused("an item"));
        check(ItemRid::parse("AAAAAQAAAAUJAAAAAAAAAA=="), refused("a resource in a container"));
        check(
            PartitionRangeRid::parse("AAAAAYAAAAEBAAAAAAAAAA=="),
            refused("a partition key range"),
        );
        check(AttachmentRid::parse("AAAAAYAAAAEDAAAAAAAAUAAAAAI="), refused("an item"));
        check(AttachmentRid::parse("AAAAAQ=="), refused("an attachment"));
        check(OfferRid::parse("AAAAAQ=="), refused("an offer"));
        let permission = PermissionRid::new(UserRid::new(1, 5), 2 << 32 | 7).to_string();
        check(ClientEncryptionKeyRid::parse(&permission), refused("a client encryption key"));
    }

    #[test]
    fn a_client_encryption_key_lies_below_its_database() {
        let key = ClientEncryptionKeyRid::new(DatabaseRid::new(1), 7);
        let bytes = [0, 0, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0];
        assert_eq!(key.to_bytes(), bytes);
        let any = ResourceId::ClientEncryptionKey(key);
        assert_eq!(ResourceId::parse(&key.to_string()), Ok(any));
        assert_eq!(any.to_bytes().as_ref(), bytes);
    }
}
