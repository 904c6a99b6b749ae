//! The ids of owners of other resources (databases, containers, users) and of offers, client encryption keys
//! and permissions, which belong to an account, a database or a user.

use super::text::text_form;
use super::{BadRid, CONTAINER_BIT, exactly};

/// The id of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseRid(u32);

impl DatabaseRid {
    /// The database with this number.
    pub const fn new(number: u32) -> DatabaseRid {
        DatabaseRid(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The 4 bytes of the id.
    pub const fn to_bytes(&self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// Reads the 4 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<DatabaseRid, BadRid> {
        Ok(DatabaseRid(u32::from_be_bytes(exactly(bytes, "a database")?)))
    }
}

/// The id of a container. A container recreated under the same name gets a new id.
///
/// Held as the big-endian number of its bytes, which prefix the id of every resource in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerRid(u64);

impl ContainerRid {
    /// The container with this number in a database.
    ///
    /// # Panics
    ///
    /// If `container` needs more than 31 bits. The top bit distinguishes containers from users and is added
    /// here.
    pub const fn new(database: u32, container: u32) -> ContainerRid {
        assert!(container < CONTAINER_BIT, "a container number has at most 31 bits");
        ContainerRid((database as u64) << 32 | (CONTAINER_BIT | container) as u64)
    }

    /// The database it belongs to.
    pub const fn database(self) -> DatabaseRid {
        DatabaseRid((self.0 >> 32) as u32)
    }

    /// Its number in the database, without the top bit.
    pub const fn container(self) -> u32 {
        const NUMBER_BITS: u64 = CONTAINER_BIT as u64 - 1;
        (self.0 & NUMBER_BITS) as u32
    }

    /// The big-endian number of its 8 bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Reads the big-endian number of its 8 bytes.
    pub const fn from_u64(number: u64) -> Result<ContainerRid, BadRid> {
        if number & CONTAINER_BIT as u64 == 0 {
            return Err(BadRid::WrongResource { expected: "a container" });
        }
        Ok(ContainerRid(number))
    }

    /// The 8 bytes of the id.
    pub const fn to_bytes(&self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Reads the 8 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<ContainerRid, BadRid> {
        ContainerRid::from_u64(u64::from_be_bytes(exactly(bytes, "a container")?))
    }
}

/// The id of a user of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserRid {
    database: u32,
    user: u32,
}

impl UserRid {
    /// The user with this number in a database.
    ///
    /// # Panics
    ///
    /// If `user` needs more than 31 bits: the top bit would make it a container.
    pub const fn new(database: u32, user: u32) -> UserRid {
        assert!(user < CONTAINER_BIT, "a user number has at most 31 bits");
        UserRid { database, user }
    }

    /// The database the user belongs to.
    pub const fn database(self) -> DatabaseRid {
        DatabaseRid(self.database)
    }

    /// The user's number in the database.
    pub const fn user(self) -> u32 {
        self.user
    }

    /// The 8 bytes of the id.
    pub const fn to_bytes(&self) -> [u8; 8] {
        ((self.database as u64) << 32 | self.user as u64).to_be_bytes()
    }

    /// Reads the 8 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<UserRid, BadRid> {
        let [d0, d1, d2, d3, u0, u1, u2, u3] = exactly(bytes, "a user")?;
        let user = u32::from_be_bytes([u0, u1, u2, u3]);
        if user & CONTAINER_BIT != 0 {
            return Err(BadRid::WrongResource { expected: "a user" });
        }
        Ok(UserRid { database: u32::from_be_bytes([d0, d1, d2, d3]), user })
    }
}

/// The id of a permission of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermissionRid {
    /// The user it was given to.
    pub user: UserRid,
    /// Its number.
    pub number: u64,
}

impl PermissionRid {
    /// The permission with this number.
    pub const fn new(user: UserRid, number: u64) -> PermissionRid {
        PermissionRid { user, number }
    }

    /// The 16 bytes of the id.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.user.to_bytes());
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Reads the 16 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<PermissionRid, BadRid> {
        let wrong = BadRid::WrongResource { expected: "a permission" };
        let (user, number) = bytes.split_at_checked(8).ok_or(wrong.clone())?;
        let user = UserRid::from_bytes(user).map_err(|_| wrong)?;
        Ok(PermissionRid { user, number: u64::from_le_bytes(exactly(number, "a permission")?) })
    }
}

/// The id of a client encryption key of a database. Uses the id space of user 0, who never exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientEncryptionKeyRid {
    /// The database it belongs to.
    pub database: DatabaseRid,
    /// Its number.
    pub number: u32,
}

impl ClientEncryptionKeyRid {
    /// Distinguishes it from other resources directly below a database.
    const KIND: u32 = 2;

    /// The key with this number.
    pub const fn new(database: DatabaseRid, number: u32) -> ClientEncryptionKeyRid {
        ClientEncryptionKeyRid { database, number }
    }

    /// The 16 bytes of the id.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.database.to_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..].copy_from_slice(&ClientEncryptionKeyRid::KIND.to_le_bytes());
        bytes
    }

    /// Reads the 16 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<ClientEncryptionKeyRid, BadRid> {
        let expected = "a client encryption key";
        let [d0, d1, d2, d3, 0, 0, 0, 0, n0, n1, n2, n3, k0, k1, k2, k3] =
            exactly(bytes, expected)?
        else {
            return Err(BadRid::WrongResource { expected });
        };
        if u32::from_le_bytes([k0, k1, k2, k3]) != ClientEncryptionKeyRid::KIND {
            return Err(BadRid::WrongResource { expected });
        }
        let database = DatabaseRid(u32::from_be_bytes([d0, d1, d2, d3]));
        Ok(ClientEncryptionKeyRid { database, number: u32::from_le_bytes([n0, n1, n2, n3]) })
    }
}

/// The id of a throughput offer: 24 bits, and the only id that does not start with its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferRid(u32);

impl OfferRid {
    /// The offer with this number.
    ///
    /// # Panics
    ///
    /// If `number` needs more than 24 bits.
    pub const fn new(number: u32) -> OfferRid {
        assert!(number < 1 << 24, "an offer number has at most 24 bits");
        OfferRid(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The 3 bytes of the id.
    pub const fn to_bytes(&self) -> [u8; 3] {
        let [b0, b1, b2, _] = self.0.to_le_bytes();
        [b0, b1, b2]
    }

    /// Reads the 3 bytes of the id.
    pub fn from_bytes(bytes: &[u8]) -> Result<OfferRid, BadRid> {
        let [b0, b1, b2] = exactly(bytes, "an offer")?;
        Ok(OfferRid(u32::from_le_bytes([b0, b1, b2, 0])))
    }
}

text_form!(DatabaseRid, ContainerRid, UserRid, PermissionRid, ClientEncryptionKeyRid, OfferRid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_numbers_with_the_top_bit_added() {
        let rid = ContainerRid::new(1, 2);
        assert_eq!(rid.as_u64(), 0x0000_0001_8000_0002);
        assert_eq!(ContainerRid::from_u64(rid.as_u64()), Ok(rid));
        assert_eq!((rid.database(), rid.container()), (DatabaseRid(1), 2));
        assert!(ContainerRid::from_u64(0x0000_0001_0000_0002).is_err());
        assert!(ContainerRid::new(1, 9) < ContainerRid::new(2, 1));
    }

    #[test]
    #[should_panic(expected = "at most 31 bits")]
    fn a_container_number_has_31_bits() {
        let _ = ContainerRid::new(1, 1 << 31);
    }

    #[test]
    #[should_panic(expected = "at most 24 bits")]
    fn an_offer_number_has_24_bits() {
        let _ = OfferRid::new(1 << 24);
    }
}
