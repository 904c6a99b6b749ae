//! Entra ID tokens, from any credential of the official Azure crates.
//!
//! `azure_identity` supports client secrets, certificates, managed and workload identities and the developer's
//! own login. This module turns one of them into a [`TokenSource`]; no other module uses those crates.

use crate::token::{Token, TokenError, TokenSource};
use azure_core::credentials::TokenCredential;
use headwater_runtime::BoxFuture;
use std::sync::Arc;

/// The token scope for any Cosmos DB account.
const SCOPE: &str = "https://cosmos.azure.com/.default";

/// An Entra ID identity as a source of tokens: `Credential::source(Entra::new(…))`.
#[derive(Clone, Debug)]
pub struct Entra {
    credential: Arc<dyn TokenCredential>,
    scope: String,
}

impl Entra {
    /// Creates a source from this credential, such as one of `azure_identity`.
    #[must_use]
    pub fn new(credential: Arc<dyn TokenCredential>) -> Entra {
        Entra { credential, scope: SCOPE.to_owned() }
    }

    /// Sets another scope: sovereign clouds have their own.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Entra {
        Entra { scope: scope.into(), ..self }
    }
}

impl TokenSource for Entra {
    fn token(&self) -> BoxFuture<Result<Token, TokenError>> {
        let Entra { credential, scope } = self.clone();
        Box::pin(async move {
            let token = credential.get_token(&[&scope], None).await?;
            let ends = u64::try_from(token.expires_on.unix_timestamp()).unwrap_or(0);
            Ok(Token::new(token.token.secret(), ends))
        })
    }
}
