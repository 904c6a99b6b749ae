//! A fleet of processes on a real server, under a long series of faults.
//!
//! Every round has one fault: a host is killed, frozen until others have done its work, or stops cleanly; the
//! server is killed; a range is split or two are merged. A frozen host with a lease stays frozen until the lease has
//! expired. Changes are written before and after the fault. All of them must arrive in order per key, with no more
//! repeats than promised.
//!
//! `HEADWATER_LIVE_ROUNDS` sets the number of rounds (ten take about a minute), `HEADWATER_LIVE_SEED` the seed.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use headwater_runtime::Random;
use std::path::PathBuf;
use support::fleet::{check_promises, given, seen, signal, start, until};
use support::{Running, Served, import, items, ok};

const HOSTS: usize = 3;
/// Number of ranges above which two are merged instead of one split.
const RANGES_MAX: usize = 5;
/// Number of items written before and after each fault.
const ITEMS: u32 = 20;

struct Day {
    random: Random,
    data: PathBuf,
    into: PathBuf,
    served: Served,
    hosts: Vec<Running>,
    started: u32,
    written: u32,
}

impl Day {
    fn write(&mut self) {
        import(&self.served, &items(self.written..self.written + ITEMS));
        self.written += ITEMS;
    }

    #[track_caller]
    fn until_all_arrived(&self) {
        let all = self.written as usize;
        until(&self.served, || seen(&self.into).len() == all);
    }

    /// Starts a host that replaces another.
    fn start_at(&mut self, place: usize) {
        self.started += 1;
        let name = format!("host-{}", self.started);
        self.hosts[place] = start(&self.served, &name, &self.into, &[]);
    }

    fn happens(&mut self) -> &'static str {
        let place = self.random.index(HOSTS);
        match self.random.index(5) {
            0 => {
                // Dropping the handle kills the host at once.
                self.start_at(place);
                "a host is killed"
            }
            1 => {
                signal(&self.hosts[place], "-STOP");
                self.write();
                self.until_all_arrived();
                signal(&self.hosts[place], "-CONT");
                "a host is frozen"
            }
            2 => {
                signal(&self.hosts[place], "-TERM");
                self.until_gone(place);
                self.start_at(place);
                "a host ends in order"
            }
            3 => {
                let address = self.served.address();
                self.served.end();
                self.served = Served::on(&self.data, &address);
                "the server is killed"
            }
            _ => self.reshape(),
        }
    }

    fn reshape(&mut self) -> &'static str {
        let orders = self.served.orders();
        let listed = ok(&["partitions", "list", &orders]);
        let first = |line: &str| line.split_whitespace().next().map(ToOwned::to_owned);
        let ranges: Vec<String> = listed.lines().skip(1).filter_map(first).collect();
        let chosen = self.random.index(ranges.len());
        if ranges.len() < RANGES_MAX {
            ok(&["partitions", "split", &orders, &ranges[chosen]]);
            return "a range is split";
        }
        let one = chosen.min(ranges.len() - 2);
        ok(&["partitions", "merge", &orders, &ranges[one], &ranges[one + 1]]);
        "two ranges are merged"
    }

    #[track_caller]
    fn until_gone(&mut self, place: usize) {
        let hosts = &mut self.hosts;
        until(&self.served, || hosts[place].has_ended());
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn a_day_of_deaths_freezes_restarts_and_reshaping_loses_no_change() {
    let (rounds, seed) = (setting("HEADWATER_LIVE_ROUNDS", 10), setting("HEADWATER_LIVE_SEED", 1));
    let directory = tempfile::tempdir().unwrap();
    let (data, into) = (directory.path().join("data"), directory.path().join("seen"));
    let served = Served::on(&data, "127.0.0.1:0");
    import(&served, &items(0..ITEMS));
    let hosts = (0..HOSTS).map(|place| start(&served, &format!("first-{place}"), &into, &[]));
    let hosts = hosts.collect();
    let random = Random::seeded(seed);
    let mut day = Day { random, data, into, served, hosts, started: 0, written: ITEMS };
    day.until_all_arrived();
    for round in 0..rounds {
        day.write();
        let what = day.happens();
        eprintln!("seed {seed}, round {round}: {what}");
        day.write();
        day.until_all_arrived();
        check_promises(&given(&day.into));
    }
    day.hosts.iter().for_each(|host| signal(host, "-TERM"));
    let leases = format!("{}/shop/leases", day.served.url);
    until(&day.served, || !ok(&["leases", "list", &leases, "--json"]).contains("\"owner\":\""));
    assert_eq!(ok(&["lag", &day.served.orders(), "--total", "--max", "0"]).trim(), "0");
    check_promises(&given(&day.into));
}
