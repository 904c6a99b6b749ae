//! `headwater lag --serve`: reports over HTTP how many hosts a processor needs, for autoscalers.
//!
//! One task samples the lag every few seconds, and requests are answered from its last sample. The load on the
//! containers therefore does not depend on how often scalers poll. A missing sample is an error (503), because a
//! scaler acts on any number it gets. This module starts and stops no hosts.

use super::units::Places;
use crate::output::say;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use headwater_processor::scale::{self, Demand, SAMPLES, Sample, Scaler};
use headwater_runtime::Runtime;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Maximum number of open connections; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// Time limit for reading the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Number of failed samples after which the last good one expires.
const LOOKS_MISSED_MAX: u32 = 3;
/// Pause after a failed accept, for example with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where to listen: a port of this machine, or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(SocketAddr);

impl FromStr for Place {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Place> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Place(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        let address = text.parse::<SocketAddr>();
        address.map(Place).context("neither a port nor an address such as 127.0.0.1:9090")
    }
}

/// Serves until it is interrupted.
pub(crate) async fn serve(
    Place(address): Place,
    places: Places,
    items_max: Option<u32>,
    every: Duration,
) -> Result<()> {
    let runtime = Runtime::system();
    let seen = Arc::new(Seen { runtime: runtime.clone(), every, state: Mutex::default() });
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    // The first sample is taken before the ready line is printed, so the first request gets an answer.
    let looking = Looking { places, items_max };
    seen.add(looking.look().await);
    say(format_args!("http://{}", listener.local_addr()?));
    tokio::select! {
        never = looking.run(&seen) => never,
        never = accept(&listener, &seen) => never,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
        () = super::run::terminated() => Ok(()),
    }
}

/// Samples the demand at an interval.
struct Looking {
    places: Places,
    items_max: Option<u32>,
}

impl Looking {
    async fn run(&self, seen: &Seen) -> Result<()> {
        loop {
            seen.runtime.sleep(seen.every).await;
            seen.add(self.look().await);
        }
    }

    async fn look(&self) -> Result<Demand> {
        let mut units = self.places.units_if_any().await?;
        ensure!(
            units.len() <= 1,
            "leases of {} processors; name one with --processor",
            units.len()
        );
        // No processor has leases yet, so the first host must be started.
        let Some(unit) = units.pop() else { return Ok(Demand::of_nobody()) };
        let source = Arc::new(self.places.source.clone());
        let scaler = Scaler::new(source, unit, self.items_max);
        Ok(scaler.measure().await?)
    }
}

/// The recent samples and the last error.
struct Seen {
    runtime: Runtime,
    every: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    demand: Option<(Demand, Duration)>,
    /// The newest samples, oldest first.
    samples: Vec<Sample>,
    trouble: Option<String>,
}

impl Seen {
    fn add(&self, looked: Result<Demand>) {
        let mut state = self.state.lock();
        match looked {
            Ok(demand) => {
                if state.samples.len() == SAMPLES {
                    state.samples.remove(0);
                }
                state.samples.push(demand.sample());
                state.demand = Some((demand, self.runtime.elapsed()));
                state.trouble = None;
            }
            Err(error) => {
                tracing::warn!("cannot look: {error:#}");
                state.trouble = Some(format!("{error:#}"));
            }
        }
    }

    /// Returns the status and body for a request.
    fn answer(&self) -> (StatusCode, serde_json::Value) {
        let state = self.state.lock();
        let old = |at: Duration| self.runtime.elapsed().saturating_sub(at);
        let fresh = |age: &Duration| *age <= self.every * LOOKS_MISSED_MAX;
        let known = state.demand.map(|(demand, at)| (demand, old(at)));
        let Some((demand, age)) = known.filter(|(_, age)| fresh(age)) else {
            let why = state.trouble.as_deref().unwrap_or("it was not looked for a while");
            return (StatusCode::SERVICE_UNAVAILABLE, serde_json::json!({ "error": why }));
        };
        let vote = scale::vote(&state.samples, demand.workers);
        let answer = serde_json::json!({
            "legacyLag": demand.legacy_lag,
            "leases": demand.leases,
            "workers": demand.workers,
            "instances": demand.instances,
            "vote": vote.as_str(),
            "transactions": demand.lag.transactions,
            "seconds": demand.lag.time.map(|time| time.as_secs()),
            "ageSeconds": age.as_secs(),
        });
        (StatusCode::OK, answer)
    }
}

async fn accept(listener: &TcpListener, seen: &Arc<Seen>) -> Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.context("nobody closes it")?;
        let Ok((stream, _)) = listener.accept().await else {
            seen.runtime.sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let answering = seen.clone();
        seen.runtime.spawn("scaler connection", async move {
            let _place = place;
            talk(stream, answering).await;
        });
    }
}

async fn talk(stream: TcpStream, seen: Arc<Seen>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &seen);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a scaler's connection ended");
    }
}

fn answer(request: &Request<Incoming>, seen: &Seen) -> Response<Full<Bytes>> {
    let error = |text: &str| serde_json::json!({ "error": text });
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, json) = match request.uri().path() {
        "/" if is_read => seen.answer(),
        "/" => (StatusCode::METHOD_NOT_ALLOWED, error("only GET")),
        _ => (StatusCode::NOT_FOUND, error("there is only /")),
    };
    let mut response = Response::new(Full::new(Bytes::from(json.to_string())));
    *response.status_mut() = status;
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        head.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        for (text, expected) in
            [("9090", "127.0.0.1:9090"), ("0.0.0.0:9090", "0.0.0.0:9090"), ("[::1]:0", "[::1]:0")]
        {
            assert_eq!(text.parse::<Place>().unwrap().0.to_string(), expected);
        }
        for text in ["", "localhost", "70000", "1.2.3.4"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    /// On a simulated clock: the last sample is valid for a while and then expires.
    #[test]
    fn what_was_not_seen_for_a_while_is_an_error_and_no_number() {
        let simulation = headwater_runtime::Simulation::new(7);
        let runtime = simulation.node().runtime();
        let every = Duration::from_secs(10);
        simulation.run(async move {
            let seen = Seen { runtime: runtime.clone(), every, state: Mutex::default() };
            assert_eq!(seen.answer().0, StatusCode::SERVICE_UNAVAILABLE);
            seen.add(Ok(Demand::of_nobody()));
            let (status, json) = seen.answer();
            assert_eq!((status, &json["instances"]), (StatusCode::OK, &1.into()));
            assert_eq!((&json["legacyLag"], &json["transactions"]), (&1.into(), &().into()));
            runtime.sleep(every * 3).await;
            seen.add(Err(anyhow::anyhow!("nobody answers")));
            assert_eq!(seen.answer().1["ageSeconds"], 30, "it still counts");
            runtime.sleep(Duration::from_secs(1)).await;
            let (status, json) = seen.answer();
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(json["error"], "nobody answers");
            assert_eq!(json["instances"], serde_json::Value::Null);
            seen.add(Ok(Demand::of_nobody()));
            assert_eq!(seen.answer().0, StatusCode::OK);
        });
    }
}
