//! Attacks on a server process: each costs a bounded amount of memory, and a neighbour is served meanwhile.
//!
//! ```text
//! target      the server as a process, its memory, and requests to it
//! kinds       the table of attacks; each sends from 127.0.0.1 until it is stopped
//! neighbour   writes, reads, queries and reads the feed from 127.0.0.2, and records the latencies
//! ```
//!
//! During attacks with stalled heads and bodies, a neighbour at the same address must be answered too.
//!
//! Here each attack takes about a second, and the neighbour must be answered. `cargo xtask hostile` runs the
//! release build for longer and also compares the neighbour's latency with that before the attack, because the
//! timing of a debug build on a busy machine is meaningless. In both forms each attack must have sent something.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod kinds;
mod neighbour;
#[path = "../support/mod.rs"]
mod support;
mod target;

use headwater_runtime::Runtime;
use kinds::{ATTACKS, FROM};
use neighbour::{BESIDE, Kind, Latencies, Neighbour};
use std::time::Duration;
use target::{Sent, Server};

/// Limit of the memory of the process at any time.
const MEMORY_MIB_MAX: u64 = 512;
/// Maximum factor between the neighbour's p99 latencies during and before the attack.
const RATIO_MAX: f64 = 5.0;
/// A latency below this always passes: it is one wake-up on a busy machine.
const QUICK: Duration = Duration::from_millis(2);

/// Seconds of each attack, if this is the long form.
fn long_form() -> Option<u64> {
    let seconds = std::env::var("HEADWATER_HOSTILE_SECONDS").ok()?;
    Some(seconds.parse().unwrap_or_else(|_| panic!("{seconds} is not a number of seconds")))
}

/// The only attack to run, by a part of its name.
fn only() -> Option<String> {
    std::env::var("HEADWATER_HOSTILE_ONLY").ok()
}

fn line(name: &str, memory_mib: u64, took: &Latencies, sent: Option<&Sent>) {
    let times = Kind::ALL.map(|kind| format!("{:>8.2}", took.p99(kind).as_secs_f64() * 1e3));
    let (times, count) = (times.join(" "), took.count());
    let sent = sent.map_or_else(String::new, |sent| {
        format!("; attackers: {} connections, {} KiB", sent.connections(), sent.bytes() / 1024)
    });
    println!("{name:<48} {memory_mib:>5} MiB {times}  ({count} requests{sent})");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_costs_more_than_its_bound_and_a_neighbour_is_served() {
    let runtime = Runtime::system();
    let time = long_form().map_or(Duration::from_millis(700), Duration::from_secs);
    let mut wrong = Vec::new();
    println!("{:<48}    memory  p99 in ms: write, read, query, feed", "attack");
    for attack in ATTACKS {
        if only().is_some_and(|only| !attack.name.contains(&only)) {
            continue;
        }
        // Each attack has its own server, so that leftovers of one do not affect the next.
        let server = Server::start(&runtime).await;
        let quiet = Neighbour::new(&server.target, BESIDE).served_for(time).await;
        server.forget_peak();
        let attackers = attack.begin(&server.target);
        runtime.sleep(attack.lead_time).await;
        let busy = Neighbour::new(&server.target, BESIDE).served_for(time).await;
        if attack.spares_its_address {
            let own = Neighbour::new(&server.target, FROM).served_for(time).await;
            let failures = own.failures.iter();
            wrong.extend(
                failures.map(|failure| format!("{}: at its address: {failure}", attack.name)),
            );
        }
        let memory_mib = server.peak_mib();
        line(attack.name, memory_mib, &busy, Some(attackers.sent()));
        if !attack.has_happened(attackers.sent()) {
            wrong.push(format!("{}: the attackers have sent nothing", attack.name));
        }
        drop(attackers);
        if memory_mib > MEMORY_MIB_MAX {
            wrong.push(format!("{}: {memory_mib} MiB", attack.name));
        }
        wrong.extend(busy.failures.iter().map(|failure| format!("{}: {failure}", attack.name)));
        if long_form().is_some() {
            line("  before it", 0, &quiet, None);
            for kind in Kind::ALL {
                let (before, now) = (quiet.p99(kind).max(QUICK / 5), busy.p99(kind));
                let ratio = now.as_secs_f64() / before.as_secs_f64();
                if ratio > RATIO_MAX {
                    wrong.push(format!("{}: {kind:?} takes {ratio:.1} times as long", attack.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
