//! The wire: what clients send and what they are answered, as pure functions over bytes.

pub mod binary;
