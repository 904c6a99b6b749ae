//! What a compatibility program needs around its checks: names, results, and a line to the runner.

use crate::Stage;
use azure_core::time::{OffsetDateTime, to_rfc7231};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::Mac;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What a check ends with; any error is its failure.
pub type Checked<T> = Result<T, Box<dyn std::error::Error>>;

const CHECK_TIME_MAX: Duration = Duration::from_secs(60);

/// A run: its checks print as they end.
pub struct Context {
    name: String,
    stage: Stage,
    failed: usize,
}

impl Context {
    pub fn new(name: String, stage: Stage) -> Context {
        Context { name, stage, failed: 0 }
    }

    pub async fn check(
        &mut self,
        group: &str,
        check: &str,
        work: impl AsyncFnOnce(&Stage) -> Checked<()>,
    ) {
        let only = std::env::var("HEADWATER_ONLY").unwrap_or_default();
        if !format!("{group}: {check}").contains(&only) {
            return;
        }
        let detail = match tokio::time::timeout(CHECK_TIME_MAX, work(&self.stage)).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => error.to_string().chars().take(600).collect(),
            Err(_) => "it took too long".to_owned(),
        };
        let ok = detail.is_empty();
        self.failed += usize::from(!ok);
        let client = &self.name;
        println!(
            "{}",
            serde_json::json!({ "client": client, "group": group, "check": check, "ok": ok, "detail": detail })
        );
    }

    /// Says that the client itself lacks what a check is about.
    pub fn not_offered(&self, group: &str, check: &str) {
        let only = std::env::var("HEADWATER_ONLY").unwrap_or_default();
        if format!("{group}: {check}").contains(&only) {
            let client = &self.name;
            println!(
                "{}",
                serde_json::json!({ "client": client, "group": group, "check": check, "ok": true, "offered": false })
            );
        }
    }

    pub fn exit_code(&self) -> i32 {
        i32::from(self.failed > 0)
    }
}

pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

pub fn equal<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Checked<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("found {found:?}, expected {expected:?}").into())
}

/// Demands that the server refused with this status.
pub fn fails<T>(status: u16, outcome: azure_data_cosmos::Result<T>) -> Checked<()> {
    match outcome {
        Ok(_) => Err(format!("expected {status}, but it succeeded").into()),
        Err(error) => equal(&u16::from(error.status().status_code()), &status),
    }
}

/// [`fails`], for work that has other errors too.
pub fn refused<T>(status: u16, outcome: Checked<T>) -> Checked<()> {
    match outcome {
        Ok(_) => Err(format!("expected {status}, but it succeeded").into()),
        Err(error) => match error.downcast::<azure_data_cosmos::CosmosError>() {
            Ok(error) => fails::<()>(status, Err(*error)),
            Err(error) => Err(error),
        },
    }
}

/// Asks the runner to restart the server, and waits until it has.
pub fn restart_server() -> Checked<()> {
    println!("{{\"control\":\"restart\"}}");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.contains("true") {
        Ok(())
    } else {
        Err(format!("the runner could not: {answer}").into())
    }
}

/// A signed request to Headwater's own path, which no official client knows.
pub fn split(database: &str, container: &str, range: &str) -> Checked<()> {
    let date = to_rfc7231(&OffsetDateTime::now_utc());
    let link = format!("dbs/{database}/colls/{container}");
    let text = format!("post\ncolls\n{link}\n{}\n\n", date.to_lowercase());
    let secret = BASE64_STANDARD.decode(variable("HEADWATER_ACCOUNT_KEY"))?;
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&secret)?;
    mac.update(text.as_bytes());
    let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    let token = format!("type=master&ver=1.0&sig={signature}");
    let token: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let endpoint = variable("HEADWATER_ENDPOINT");
    let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let body = serde_json::json!({ "range": range }).to_string();
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST /_headwater/partitions/{database}/{container}/split HTTP/1.1\r\nHost: {address}\r\n\
         Authorization: {token}\r\nx-ms-date: {date}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") {
        return Ok(());
    }
    Err(format!("the split failed: {answer}").into())
}
