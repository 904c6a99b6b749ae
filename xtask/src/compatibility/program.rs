//! Runs a client's program: reads its lines as they arrive and executes its control requests.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::clients::{Client, Places};
use super::process;
use super::results::{Check, Report};
use super::server::Server;

/// The emulator's key, which is public: <https://learn.microsoft.com/azure/cosmos-db/emulator>.
const KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
/// Time without output after which a program counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(90);

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Check(Check),
    Control { control: String },
}

/// Runs the program to completion.
pub(super) fn run(client: &'static Client, places: &Places<'_>, server: Server) -> Result<Report> {
    let mut command = client.run.command(places);
    command
        .envs([("HEADWATER_ENDPOINT", &server.http), ("HEADWATER_ENDPOINT_HTTPS", &server.https)])
        .env("HEADWATER_AUTHORITY", server.authority())
        .env("HEADWATER_BINARY", &server.binary)
        .env("HEADWATER_ACCOUNT_KEY", KEY)
        .current_dir(&places.source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{} cannot start", client.name))?;
    let errors = process::drain(child.stderr.take());
    let report = converse(client, &mut child, server);
    process::end(&mut child);
    let said = errors.recv_timeout(Duration::from_secs(5)).unwrap_or_default();
    report.map(|report| report.explained_by(&said))
}

fn converse(client: &'static Client, child: &mut Child, mut server: Server) -> Result<Report> {
    let lines = lines_of(child)?;
    let mut input = child.stdin.take().context("the input was not piped")?;
    let mut report = Report::new(client.name);
    loop {
        let text = match lines.recv_timeout(SILENCE_MAX) {
            Ok(text) => text,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                report.stop(format!("said nothing for {} s", SILENCE_MAX.as_secs()));
                return Ok(report);
            }
        };
        match serde_json::from_str(&text) {
            Ok(Line::Check(check)) => report.push(check),
            Ok(Line::Control { control }) if control == "restart" => {
                server.restart()?;
                writeln!(input, "{{\"done\":true}}").context("the program does not listen")?;
                input.flush().context("the program does not listen")?;
            }
            // Other output, for example from libraries, is passed through.
            Ok(Line::Control { .. }) | Err(_) => println!("{}: {text}", client.name),
        }
    }
    if !server.is_alive() {
        report.stop("the server ended during the run".to_owned());
    }
    let status = process::wait(child, Duration::from_secs(30))?;
    report.ended(status.success());
    Ok(report)
}

/// Returns the lines that a child prints, as they arrive.
fn lines_of(child: &mut Child) -> Result<mpsc::Receiver<String>> {
    let output = child.stdout.take().context("the output was not piped")?;
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                break;
            }
            line.clear();
        }
    };
    #[expect(clippy::disallowed_methods, reason = "ends with the pipe it reads")]
    std::thread::spawn(read); // tidy: allow ends with the pipe it reads
    Ok(receiver)
}
