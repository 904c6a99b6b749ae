//! Servers that speak the protocol of Cosmos DB over HTTP: ours, and two that others wrote.
//!
//! All get the same bytes. What only ours has is a feed worth the name, so the others are not asked.

use super::Server;
use super::catalogue::{Peer, Program};
use super::process::{Process, free_address};
use crate::commands::bench::harness::{Harness, rate};
use crate::commands::bench::http::load::{self, Connection, Requests, Signer, Target, Until};
use crate::commands::bench::http::{self, DOCS, MANY};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Changes on a page of the feed.
const PAGE_ITEMS: u64 = 1000;

/// One of them, with a container in it.
pub(super) struct Cosmos {
    name: &'static str,
    owner: Owner,
    target: Target,
    signer: Signer,
    creates: Requests,
    reads: Requests,
}

/// Whose process it is.
enum Owner {
    Ours(http::Process),
    Theirs(Process),
}

impl Cosmos {
    /// Our own, durable.
    pub(super) fn ours(harness: &Harness) -> Result<Cosmos> {
        let process = http::Process::serve(harness, &harness.dir("ours"))?;
        let target = Target::at(process.address);
        Cosmos::new(harness, "headwater", Owner::Ours(process), target)
    }

    pub(super) fn start(harness: &Harness, peer: Peer, program: &Program) -> Result<Cosmos> {
        let address = free_address()?;
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let mut command = program.command();
        match peer {
            Peer::CosmosdbServer => {
                command.args(["--no-ssl", "--host", &host, "--port", &port]);
            }
            _ => {
                cosmium_arguments(&mut command, &host, &port);
            }
        }
        let mut process = Process::start(harness, peer.name(), command, Signal::KILL)?;
        process.wait_until_listening(harness, address)?;
        Cosmos::new(harness, peer.name(), Owner::Theirs(process), Target::at(address))
    }

    fn new(harness: &Harness, name: &'static str, owner: Owner, target: Target) -> Result<Cosmos> {
        let signer = Signer::new(&harness.clock)?;
        http::create_container(harness, target.address, &signer)?;
        let creates = http::write_requests(&signer, &Arc::new(AtomicU64::new(0)), "");
        let reads = http::in_turn(http::read_requests(harness, &signer));
        Ok(Cosmos { name, owner, target, signer, creates, reads })
    }

    fn rate(&self, harness: &Harness, requests: &Requests) -> Result<Option<f64>> {
        let (clock, target) = (harness.clock.clone(), self.target.clone());
        let (requests, until) = (requests.clone(), Until::Elapsed(harness.plan.window));
        let load =
            async move { load::run::<Connection>(&clock, &target, MANY, until, requests).await };
        harness.run(load).map(Some)
    }

    fn is_ours(&self) -> bool {
        matches!(self.owner, Owner::Ours(_))
    }
}

/// Its flags begin with one dash and a capital.
fn cosmium_arguments(command: &mut Command, host: &str, port: &str) {
    command.args(["-Host", host, "-Port", port, "-DisableTls", "-LogLevel", "silent"]);
}

impl Server for Cosmos {
    fn fill(&self, harness: &Harness) -> Result<()> {
        http::fill::<Connection>(harness, &self.target, self.name, &self.creates)
    }

    fn writes(&self, harness: &Harness) -> Result<Option<f64>> {
        self.rate(harness, &self.creates)
    }

    fn reads(&self, harness: &Harness) -> Result<Option<f64>> {
        self.rate(harness, &self.reads)
    }

    fn feed(&self, harness: &Harness) -> Result<Option<f64>> {
        if !self.is_ours() {
            return Ok(None);
        }
        let (signer, address, items) =
            (self.signer.clone(), self.target.address, harness.plan.items);
        let clock = harness.clock.clone();
        let read = async move {
            let mut connection = Connection::open(address).await?;
            let (mut read, mut position) = (0, String::new());
            let started = clock.elapsed();
            while read < items {
                let head = format!(
                    "A-IM: Incremental Feed\r\nx-ms-max-item-count: {PAGE_ITEMS}\r\n{position}"
                );
                let got = connection.ask(&signer.request("GET", DOCS, &head, b"")).await?;
                ensure!(got.status == 200 && got.items > 0, "the feed ended after {read} items");
                position = format!("If-None-Match: {}\r\n", got.etag.context("no etag")?);
                read += got.items;
            }
            Ok::<_, anyhow::Error>(rate(read, clock.elapsed() - started))
        };
        harness.run(read).map(Some)
    }

    fn visible(&self, harness: &Harness) -> Result<Option<f64>> {
        if !self.is_ours() {
            return Ok(None);
        }
        let (visible, _) = http::visible_p99(harness, self.target.address, &self.signer)?;
        Ok(Some(visible))
    }

    fn memory(&self, _: &Harness) -> Result<Option<f64>> {
        let bytes = match &self.owner {
            Owner::Ours(process) => process.resident_bytes(),
            Owner::Theirs(process) => process.resident_bytes(),
        };
        bytes.map(Some)
    }
}
