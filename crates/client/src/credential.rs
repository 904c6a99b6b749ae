//! What a request proves itself with.

use crate::token::{Token, TokenSource, Tokens};
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
    /// An identity token (a JWT), good for as long as it is.
    Identity(String),
    /// Identity tokens, asked for again before they end.
    Tokens(Tokens),
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

    /// Identity tokens from a source, each used until shortly before it ends.
    #[must_use]
    pub fn source(source: impl TokenSource) -> Credential {
        Credential::Tokens(Tokens::new(source))
    }

    /// The two headers of a request: the token and the date it is signed with. `token` is what a source
    /// gave for it, if there is one.
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
