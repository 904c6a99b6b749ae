//! What a request proves itself with.

use headwater_protocol::auth::{BadKey, EMULATOR_KEY, Key, Signable, format_http_date, sign};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt;

/// What a request proves itself with. Never printed.
#[derive(Clone)]
pub enum Credential {
    /// An account key: every request is signed with it.
    Key(Key),
    /// A resource token, as a permission returns it.
    ResourceToken(String),
    /// An identity token (a JWT).
    Identity(String),
}

impl Credential {
    /// A key as it stands in connection strings.
    ///
    /// # Errors
    /// When the text is not base64.
    pub fn key(text: &str) -> Result<Credential, BadKey> {
        Key::from_base64(text.trim()).map(Credential::Key)
    }

    /// The key every emulator has. Known to everybody, so it proves nothing beyond one machine.
    ///
    /// # Errors
    /// Never in practice: the key is well-formed.
    pub fn emulator() -> Result<Credential, BadKey> {
        Credential::key(EMULATOR_KEY)
    }

    /// The two headers of a request: the token and the date it is signed with.
    pub(crate) fn headers(
        &self,
        verb: &str,
        resource_type: &str,
        link: &str,
        unix_seconds: u64,
    ) -> (String, String) {
        let date = format_http_date(unix_seconds);
        let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let token = match self {
            Credential::Key(key) => {
                let links = [link];
                let x_ms_date = Some(date.as_str());
                sign(key, &Signable { verb, resource_type, links: &links, x_ms_date, date: None })
            }
            Credential::ResourceToken(token) => escaped(token),
            Credential::Identity(token) => escaped(&format!("type=aad&ver=1.0&sig={token}")),
        };
        (token, date)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credential::Key(_) => "Credential::Key(hidden)",
            Credential::ResourceToken(_) => "Credential::ResourceToken(hidden)",
            Credential::Identity(_) => "Credential::Identity(hidden)",
        })
    }
}
