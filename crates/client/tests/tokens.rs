//! Identity tokens from a source, against a real server that checks them.

#![allow(clippy::unwrap_used)] // a failed test names the line

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use headwater_client::{
    Client, ClientError, Credential, Endpoint, Options, Reason, Remedy, Token, TokenError,
    TokenSource,
};
use headwater_protocol::auth::EMULATOR_KEY;
use headwater_runtime::{BoxFuture, Runtime};
use headwater_server::{Config, Server};
use headwater_store::Account;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A token in the form of SDK test suites for an emulator: the third part is the key that validates it.
fn jwt(key: &str) -> Token {
    let ends = Runtime::system().unix_millis() / 1000 + 7200;
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let header = encode(r#"{"typ":"JWT","alg":"RS256"}"#);
    let claims = encode(&format!(r#"{{"exp":{ends}}}"#));
    Token::new(format!("{header}.{claims}.{}", encode(key)), ends)
}

/// A source that returns a token for each key in turn, and repeats the last one.
#[derive(Clone)]
struct Keys(Arc<AtomicU32>, &'static [&'static str]);

impl TokenSource for Keys {
    fn token(&self) -> BoxFuture<Result<Token, TokenError>> {
        let place = self.0.fetch_add(1, Ordering::SeqCst) as usize;
        let key = self.1.get(place).or(self.1.last()).copied();
        Box::pin(async move { key.map(jwt).ok_or_else(|| "nobody is logged in".into()) })
    }
}

struct World {
    server: Server,
    account: Account,
}

impl World {
    async fn start() -> World {
        let account = Account::ephemeral().await.unwrap();
        let mut config = Config::emulator().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        (config.http, config.https) = (Some(any), None);
        let server = Server::start(config, account.clone(), Runtime::system()).await.unwrap();
        World { server, account }
    }

    /// A client whose tokens contain these keys, and a counter of its token requests.
    fn client(&self, keys: &'static [&'static str]) -> (Client, Arc<AtomicU32>) {
        let at = Endpoint::http("127.0.0.1", self.server.http().unwrap().port());
        let asked = Arc::new(AtomicU32::new(0));
        let credential = Credential::source(Keys(asked.clone(), keys));
        (Client::new(at, credential, Options::default(), Runtime::system()).unwrap(), asked)
    }

    async fn stop(self) {
        self.server.stop().await;
        self.account.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_token_is_sent_with_every_request_and_asked_for_once() {
    let world = World::start().await;
    let (client, asked) = world.client(&[EMULATOR_KEY]);
    for id in ["a", "b", "c"] {
        client.create_database(id).await.unwrap();
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_token_that_was_taken_back_is_replaced_without_anybody_noticing() {
    let world = World::start().await;
    let (client, asked) = world.client(&["b2xk", EMULATOR_KEY]);
    client.create_database("a").await.unwrap();
    client.read_database("a").await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    world.stop().await;
}

#[tokio::test]
async fn an_identity_nobody_knows_is_refused_and_not_asked_for_ever() {
    let world = World::start().await;
    let (client, asked) = world.client(&["b2xk"]);
    let refused = client.create_database("a").await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Unauthorized), "{refused}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    world.stop().await;
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_waiting_may_help() {
    let world = World::start().await;
    let (client, _) = world.client(&[]);
    let none = client.create_database("a").await.unwrap_err();
    assert!(matches!(none, ClientError::NoToken(_)), "{none}");
    assert_eq!(none.remedy(), Remedy::RetryLater);
    assert!(none.to_string().contains("nobody is logged in"), "{none}");
    world.stop().await;
}

#[cfg(feature = "entra")]
mod entra {
    use super::*;
    use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
    use headwater_client::Entra;
    use std::pin::Pin;

    /// A credential of `azure_identity`'s interface, without a directory.
    #[derive(Debug)]
    struct Directory;

    impl TokenCredential for Directory {
        fn get_token<'a, 'b, 'c, 'd, 'e>(
            &'a self,
            scopes: &'b [&'c str],
            _: Option<TokenRequestOptions<'d>>,
        ) -> Pin<Box<dyn Future<Output = azure_core::Result<AccessToken>> + Send + 'e>>
        where
            'a: 'e,
            'b: 'e,
            'c: 'e,
            'd: 'e,
            Self: 'e,
        {
            let scope = scopes.join(" ");
            Box::pin(async move {
                assert_eq!(scope, "https://cosmos.azure.com/.default");
                let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
                let claims = encode(r#"{"exp":4000000000}"#);
                let ends = azure_core::time::OffsetDateTime::from_unix_timestamp(4_000_000_000);
                let token = format!("{}.{claims}.{}", encode("{}"), encode(EMULATOR_KEY));
                Ok(AccessToken::new(token, ends.unwrap()))
            })
        }
    }

    #[tokio::test]
    async fn an_identity_of_the_official_crates_is_a_source_of_tokens() {
        let world = World::start().await;
        let at = Endpoint::http("127.0.0.1", world.server.http().unwrap().port());
        let credential = Credential::source(Entra::new(Arc::new(Directory)));
        let client = Client::new(at, credential, Options::default(), Runtime::system()).unwrap();
        client.create_database("a").await.unwrap();
        world.stop().await;
    }
}
