//! Credentials that authorize requests.

use crate::token::{Token, TokenSource, Tokens};
use headwater_protocol::auth::{BadKey, EMULATOR_KEY, Key, Signable, format_http_date, sign};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt;

/// A credential that authorizes requests. Never printed.
#[derive(Clone)]
pub enum Credential {
    /// An account key, which signs every request.
    Key(Key),
    /// A resource token, as a permission contains it.
    ResourceToken(String),
    /// An identity token (a JWT), used as long as it is valid.
    Identity(String),
    /// Identity tokens that are renewed before they expire.
    Tokens(Tokens),
}

impl Credential {
    /// Reads a key as connection strings contain it.
    ///
    /// # Errors
    /// When the text is not base64.
    pub fn key(text: &str) -> Result<Credential, BadKey> {
        Key::from_base64(text.trim()).map(Credential::Key)
    }

    /// The well-known key of every emulator. It is public, so it protects nothing beyond one machine.
    ///
    /// # Errors
    /// Never in practice: the key is well-formed.
    pub fn emulator() -> Result<Credential, BadKey> {
        Credential::key(EMULATOR_KEY)
    }

    /// Identity tokens from a source, each used until shortly before it expires.
    #[must_use]
    pub fn source(source: impl TokenSource) -> Credential {
        Credential::Tokens(Tokens::new(source))
    }

    /// The two headers of a request: the token and the date it is signed with. `token` is the one from a token
    /// source, if the credential has one.
    pub(crate) fn headers(
        &self,
        verb: &str,
        resource_type: &str,
        link: &str,
        unix_seconds: u64,
        token: Option<&Token>,
    ) -> (String, String) {
        let date = format_http_date(unix_seconds);
        let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let identity = |token: &str| escaped(&format!("type=aad&ver=1.0&sig={token}"));
        let token = match self {
            Credential::Key(key) => {
                let links = [link];
                let x_ms_date = Some(date.as_str());
                sign(key, &Signable { verb, resource_type, links: &links, x_ms_date, date: None })
            }
            Credential::ResourceToken(token) => escaped(token),
            Credential::Identity(token) => identity(token),
            Credential::Tokens(_) => identity(token.map(Token::secret).unwrap_or_default()),
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
            Credential::Tokens(_) => "Credential::Tokens(hidden)",
        })
    }
}
