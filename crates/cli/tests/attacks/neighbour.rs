//! A client that sends ordinary requests during an attack and records their latency.

use crate::target::{Connection, DOCS, KEY, PATIENCE, Target, ask_on, query, request};
use std::time::Duration;

/// The address of a neighbour, different from that of the attack.
pub(crate) const BESIDE: &str = "127.0.0.2";
/// Rounds after which the neighbour opens a new connection.
const ROUNDS_PER_CONNECTION: usize = 5;
/// Number of refusals after which the neighbour stops.
const FAILURES_MAX: usize = 3;

/// The kinds of request of the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Read,
    Query,
    Feed,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Write, Kind::Read, Kind::Query, Kind::Feed];

    fn request(self, round: usize) -> String {
        let upsert = [KEY, ("x-ms-documentdb-is-upsert", "True")];
        let item = format!(r#"{{"id":"own","pk":"p","round":{round}}}"#);
        let feed = [("A-IM", "Incremental feed"), ("x-ms-max-item-count", "1"), KEY];
        match self {
            Kind::Write => request("POST", DOCS, &upsert, &item),
            Kind::Read => request("GET", &format!("{DOCS}/own"), &[KEY], ""),
            Kind::Query => query("SELECT c.round FROM c WHERE c.id = 'own'"),
            Kind::Feed => request("GET", DOCS, &feed, ""),
        }
    }
}

/// The latencies of requests, and those without an answer.
#[derive(Default)]
pub(crate) struct Latencies {
    took: Vec<(Kind, Duration)>,
    pub(crate) failures: Vec<String>,
}

impl Latencies {
    pub(crate) fn count(&self) -> usize {
        self.took.len()
    }

    /// Returns the p99 latency of a kind of request.
    pub(crate) fn p99(&self, kind: Kind) -> Duration {
        let of_kind = self.took.iter().filter(|(of, _)| *of == kind);
        let mut took: Vec<Duration> = of_kind.map(|(_, took)| *took).collect();
        took.sort_unstable();
        let place = (took.len() * 99).div_ceil(100).saturating_sub(1);
        took.get(place).copied().unwrap_or_default()
    }
}

pub(crate) struct Neighbour {
    target: Target,
    from: &'static str,
    took: Latencies,
}

impl Neighbour {
    pub(crate) fn new(target: &Target, from: &'static str) -> Neighbour {
        Neighbour { target: target.clone(), from, took: Latencies::default() }
    }

    /// Sends requests of all kinds in turn for a while, at least once each.
    pub(crate) async fn served_for(mut self, time: Duration) -> Latencies {
        let runtime = self.target.runtime.clone();
        let end = runtime.elapsed() + time;
        let mut stream = None;
        let mut round = 0;
        while (runtime.elapsed() < end || round == 0) && self.took.failures.len() < FAILURES_MAX {
            if round % ROUNDS_PER_CONNECTION == 0 {
                stream = None;
            }
            for kind in Kind::ALL {
                let before = runtime.elapsed();
                let asked = runtime.timeout(PATIENCE, self.ask(&mut stream, kind, round)).await;
                let took = runtime.elapsed() - before;
                self.took.took.push((kind, took));
                let failure = match asked {
                    Some(Ok(200 | 201)) => continue,
                    Some(Ok(status)) => format!("{kind:?} is answered {status}"),
                    Some(Err(error)) => format!("{kind:?} fails: {error}"),
                    None => format!("{kind:?} is not answered within {PATIENCE:?}"),
                };
                self.took.failures.push(failure);
                stream = None;
            }
            round += 1;
            // An ordinary client, not another attack.
            runtime.sleep(Duration::from_millis(1)).await;
        }
        self.took
    }

    async fn ask(
        &self,
        stream: &mut Option<Connection>,
        kind: Kind,
        round: usize,
    ) -> std::io::Result<u16> {
        let mut open = match stream.take() {
            Some(open) => open,
            None => self.target.connect(self.from).await?,
        };
        let status = ask_on(&mut open, &kind.request(round)).await?;
        *stream = Some(open);
        Ok(status)
    }
}
