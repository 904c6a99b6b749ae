//! Tokens of Entra ID, from whatever credential the official Azure crates have.
//!
//! `azure_identity` knows client secrets, certificates, managed and workload identities and the developer's
//! own login; here one of them becomes a [`TokenSource`]. Nothing of it is known elsewhere.

use crate::token::{Token, TokenError, TokenSource};
use azure_core::credentials::TokenCredential;
use headwater_runtime::BoxFuture;
use std::sync::Arc;

/// What a token must be for: any account of Cosmos DB.
const SCOPE: &str = "https://cosmos.azure.com/.default";

/// An identity of Entra ID as a source of tokens: `Credential::source(Entra::new(…))`.
#[derive(Clone, Debug)]
pub struct Entra {
    credential: Arc<dyn TokenCredential>,
    scope: String,
}

impl Entra {
    /// Asks this credential, such as one of `azure_identity`.
    #[must_use]
    pub fn new(credential: Arc<dyn TokenCredential>) -> Entra {
        Entra { credential, scope: SCOPE.to_owned() }
    }

    /// For another scope: sovereign clouds have their own.
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
