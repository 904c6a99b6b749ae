//! What a compatibility program needs around its checks: names, results, and a line to the runner.

use crate::Stage;
use std::io::BufRead;
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
