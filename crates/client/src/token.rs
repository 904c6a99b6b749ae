//! Identity tokens with an expiry: fetched on first use and renewed before they expire.
//!
//! ```text
//! fetched ────────────────────── renewed ────── expires
//!        used from the cache      │  EARLY  │
//!                                 └ fetched again; while that fails the old token stays in use
//! ```
//!
//! One request at a time fetches a token; concurrent requests wait for it. A [`TokenSource`] provides the
//! tokens; this module handles no tenants or secrets.

use headwater_runtime::{BoxFuture, Runtime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long before its expiry a token is renewed, as in the official SDKs.
const EARLY: Duration = Duration::from_secs(300);
/// The pause after a failed renewal while the old token is still valid.
const PAUSE: Duration = Duration::from_secs(30);

/// Why a token could not be obtained. Returned to the request that needed it.
pub type TokenError = Box<dyn std::error::Error + Send + Sync>;

/// A source of identity tokens: Entra ID, a file, a sidecar.
pub trait TokenSource: Send + Sync + 'static {
    /// Fetches a token for Cosmos DB. Called again when the previous one is about to expire or was refused.
    fn token(&self) -> BoxFuture<Result<Token, TokenError>>;
}

impl<F> TokenSource for F
where
    F: Fn() -> BoxFuture<Result<Token, TokenError>> + Send + Sync + 'static,
{
    fn token(&self) -> BoxFuture<Result<Token, TokenError>> {
        self()
    }
}

/// An identity token. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: Arc<str>,
    ends: Duration,
}

impl Token {
    /// Creates a token from a JWT and its expiry, in seconds since 1970.
    #[must_use]
    pub fn new(secret: impl Into<Arc<str>>, ends_seconds: u64) -> Token {
        Token { secret: secret.into(), ends: Duration::from_secs(ends_seconds) }
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(hidden, good until {} s)", self.ends.as_secs())
    }
}

/// A source with its latest token. Clones share both.
#[derive(Clone)]
pub struct Tokens {
    source: Arc<dyn TokenSource>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    token: Option<Token>,
    /// When to renew a token that is still valid, on the clock of its expiry.
    ask_at: Duration,
}

impl Tokens {
    pub(crate) fn new(source: impl TokenSource) -> Tokens {
        Tokens { source: Arc::new(source), known: Arc::default() }
    }

    /// Returns a valid token, fetching one if necessary.
    pub(crate) async fn get(&self, runtime: &Runtime) -> Result<Token, TokenError> {
        let mut known = self.known.lock().await;
        let now = Duration::from_millis(runtime.unix_millis());
        let good = known.token.clone().filter(|token| now < token.ends);
        if let Some(token) = good.clone().filter(|_| now < known.ask_at) {
            return Ok(token);
        }
        match (self.source.token().await, good) {
            (Ok(token), _) => {
                // A short-lived token is used for at least half of its life, or every request would fetch one.
                let life = token.ends.saturating_sub(now);
                known.ask_at = now + life.saturating_sub(EARLY).max(life / 2);
                known.token = Some(token.clone());
                Ok(token)
            }
            (Err(error), Some(good)) => {
                tracing::warn!(%error, "cannot renew the identity token; the old one stays in use until it expires");
                known.ask_at = now + PAUSE;
                Ok(good)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Discards a token that the service refused; the next request fetches another.
    pub(crate) async fn forget(&self, refused: &Token) {
        let mut known = self.known.lock().await;
        if known.token.as_ref() == Some(refused) {
            known.token = None;
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_runtime::Simulation;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Issues numbered tokens valid for an hour, or fails.
    struct Stage {
        tokens: Tokens,
        asked: Arc<AtomicU64>,
        fails: Arc<AtomicBool>,
        runtime: Runtime,
    }

    impl Stage {
        fn new(runtime: &Runtime, seconds: u64) -> Stage {
            let (asked, fails) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let (count, broken, clock) = (asked.clone(), fails.clone(), runtime.clone());
            let source = move || -> BoxFuture<Result<Token, TokenError>> {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let (broken, clock) = (broken.load(Ordering::SeqCst), clock.clone());
                Box::pin(async move {
                    clock.sleep(Duration::from_millis(50)).await;
                    let ends = clock.unix_millis() / 1000 + seconds;
                    if broken {
                        Err("down".into())
                    } else {
                        Ok(Token::new(number.to_string(), ends))
                    }
                })
            };
            Stage { tokens: Tokens::new(source), asked, fails, runtime: runtime.clone() }
        }

        async fn get(&self) -> Option<u64> {
            let token = self.tokens.get(&self.runtime).await.ok()?;
            token.secret().parse().ok()
        }

        fn asked(&self) -> u64 {
            self.asked.load(Ordering::SeqCst)
        }

        async fn after(&self, seconds: u64) -> Option<u64> {
            self.runtime.sleep(Duration::from_secs(seconds)).await;
            self.get().await
        }
    }

    fn play<Work: Future<Output = ()> + Send + 'static>(script: fn(Runtime) -> Work) {
        let simulation = Simulation::new(7);
        simulation.run(script(simulation.node().runtime()));
    }

    #[test]
    fn a_token_is_asked_for_once_and_again_before_it_ends() {
        play(|runtime| async move {
            let stage = Stage::new(&runtime, 3600);
            let (one, other) = tokio::join!(stage.get(), stage.get());
            assert_eq!((one, other, stage.asked()), (Some(1), Some(1), 1), "one asks for both");
            assert_eq!(stage.after(3200).await, Some(1));
            assert_eq!(stage.after(200).await, Some(2), "five minutes before its end");
            assert_eq!(stage.after(10).await, Some(2));
        });
    }

    #[test]
    fn while_no_new_one_comes_the_old_one_is_used_to_its_end_and_not_beyond() {
        play(|runtime| async move {
            let stage = Stage::new(&runtime, 3600);
            assert_eq!(stage.get().await, Some(1));
            stage.fails.store(true, Ordering::SeqCst);
            assert_eq!(stage.after(3400).await, Some(1));
            assert_eq!((stage.after(5).await, stage.asked()), (Some(1), 2), "it is left alone");
            assert_eq!((stage.after(40).await, stage.asked()), (Some(1), 3));
            assert_eq!(stage.after(300).await, None, "what is over is not sent");
            stage.fails.store(false, Ordering::SeqCst);
            assert!(stage.get().await.is_some());
        });
    }

    #[test]
    fn a_refused_token_is_replaced_and_a_newer_one_is_not() {
        play(|runtime| async move {
            let stage = Stage::new(&runtime, 3600);
            let first = stage.tokens.get(&runtime).await.unwrap();
            stage.tokens.forget(&first).await;
            assert_eq!(stage.get().await, Some(2));
            stage.tokens.forget(&first).await;
            assert_eq!((stage.get().await, stage.asked()), (Some(2), 2));
        });
    }

    #[test]
    fn a_short_token_is_used_for_half_its_life() {
        play(|runtime| async move {
            let stage = Stage::new(&runtime, 60);
            assert_eq!(stage.get().await, Some(1));
            assert_eq!(stage.after(20).await, Some(1));
            assert_eq!(stage.after(20).await, Some(2));
        });
    }

    #[test]
    fn nothing_prints_a_token() {
        let shown = format!("{:?}", Token::new("secret-text", 1));
        assert!(!shown.contains("secret-text"), "{shown}");
    }
}
