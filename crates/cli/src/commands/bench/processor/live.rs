//! Fleets of processes at a server of their own: ours, and beside them the official Java processor where it is
//! installed. What is sent is counted at the server, and what is killed is killed by the system.
//!
//! ```text
//! lease_writes  four hosts of each kind at once, on one monitored container: what each unit's lease container
//!               had committed before and after the same minute
//! failover      two processes, one of them killed, then one change for many keys: until the other has them all
//! ```

use super::hosts::Settings;
use super::java::Java;
use crate::commands::bench::harness::Harness;
use crate::commands::bench::http::Process;
use crate::commands::bench::report::{Hold, Of, Row, Unit};
use anyhow::{Context, Result, bail, ensure};
use headwater_client::{Client, Credential, Endpoint, Precondition};
use headwater_model::PartitionKey;
use headwater_processor::lease::Lease;
use headwater_processor::lease_store::{ContainerLeases, Layout, LeaseStore};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

const DATABASE: &str = "shop";
/// A container has a range for each of these.
const UNITS_PER_RANGE: u32 = 6000;
const HOSTS: usize = 4;
const RANGES: u32 = 64;
/// Four renewals of the originals, so that it matters little where it begins.
const WINDOW: Duration = Duration::from_secs(68);
/// Within a minute every lease has stored where it stands, once; that is not what goes on.
const FIRST_POSITIONS: Duration = Duration::from_secs(65);
const RANGES_TO_MOVE: u32 = 8;
/// Enough keys to be in every range.
const CHANGES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(240);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Whose processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Native,
    Shared,
    Java,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Native => "native",
            Kind::Shared => "shared with .NET",
            Kind::Java => "java",
        }
    }

    fn layout(self) -> Layout {
        match self {
            Kind::Native => Layout::PartitionKey,
            Kind::Shared | Kind::Java => Layout::Id,
        }
    }
}

/// Rows about fleets of processes.
pub(super) fn rows(harness: &Harness, java: &Result<Java, String>) -> Result<Vec<Row>> {
    let stage = Stage::new(harness, java)?;
    let mut rows = stage.lease_writes()?;
    rows.push(stage.failover(Settings::Defaults, 1, 25.0)?);
    rows.push(stage.failover(Settings::Fast, 3, 3.0)?);
    Ok(rows)
}

/// A server, and who is to be measured at it.
struct Stage<'a> {
    harness: &'a Harness,
    java: &'a Result<Java, String>,
    server: Process,
    client: Client,
}

/// Hosts in one process. They end with this handle, and with this program however it ends.
struct Hosts {
    child: Child,
    /// They end when it does.
    _input: Option<ChildStdin>,
    printed: PathBuf,
}

impl Hosts {
    /// Ends them where they stand.
    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The ids of the changes they were given.
    fn seen(&self) -> Result<HashSet<String>> {
        let printed = std::fs::read_to_string(&self.printed).context("what hosts printed")?;
        Ok(printed.lines().map(str::to_owned).collect())
    }

    fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("hosts ended with {status}; see above"),
            None => Ok(()),
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Both do nothing to a process that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Stage<'a> {
    fn new(harness: &'a Harness, java: &'a Result<Java, String>) -> Result<Stage<'a>> {
        let server = Process::serve(harness, &harness.dir("processor-live"))?;
        let at = Endpoint::http("127.0.0.1", server.address.port());
        let options = headwater_client::Options::default();
        let client = Client::new(at, Credential::emulator()?, options, harness.clock.clone())?;
        let stage = Stage { harness, java, server, client };
        let client = stage.client.clone();
        harness.run(async move { Ok(client.create_database(DATABASE).await?) })?;
        stage.create("wide", RANGES)?;
        stage.create("narrow", RANGES_TO_MOVE)?;
        Ok(stage)
    }

    fn create(&self, name: &str, ranges: u32) -> Result<()> {
        let definition = format!(
            r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#
        );
        let (client, name) = (self.client.clone(), name.to_owned());
        self.harness.run(async move {
            let throughput = Some(UNITS_PER_RANGE * ranges);
            client.create_container(DATABASE, definition, throughput).await?;
            let made = client.container(DATABASE, &name).ranges().await?.len();
            ensure!(u32::try_from(made) == Ok(ranges), "{name} has {made} ranges, not {ranges}");
            Ok(())
        })
    }

    /// Starts hosts on a lease container of this name, which is made if need be.
    fn start(
        &self,
        kind: Kind,
        leases: &str,
        container: &str,
        names: &str,
        settings: Settings,
    ) -> Result<Hosts> {
        let (client, wanted, layout) = (self.client.clone(), leases.to_owned(), kind.layout());
        self.harness.run(async move {
            let container = client.container(DATABASE, &wanted);
            Ok(ContainerLeases::open_or_create(container, layout, None).await?)
        })?;
        let port = self.server.address.port();
        let mut command = match (kind, self.java) {
            (Kind::Java, Ok(java)) => java.command(port),
            (Kind::Java, Err(why)) => bail!("{why}"),
            (Kind::Native | Kind::Shared, _) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bench", "child", "hosts", "--port", &port.to_string()]);
                command
            }
        };
        command.args([DATABASE, container, leases, names, settings.word()]);
        if kind == Kind::Shared {
            command.arg("--shared");
        }
        let printed = self.harness.dir(&format!("{leases}-{names}.printed"));
        let file = std::fs::File::create(&printed)?;
        let mut child =
            command.stdin(Stdio::piped()).stdout(file).spawn().context("cannot start hosts")?;
        let input = child.stdin.take();
        Ok(Hosts { child, _input: input, printed })
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        self.harness.check_interrupted()?;
        let clock = self.harness.clock.clone();
        self.harness.run(async move {
            clock.sleep(time).await;
            Ok(())
        })
    }

    /// How many leases every host has; nothing while some have none.
    fn shares(&self, kind: Kind, leases: &str) -> Result<Option<BTreeMap<String, usize>>> {
        let container = self.client.container(DATABASE, leases);
        let layout = kind.layout();
        let listing = self.harness.run(async move {
            Ok(ContainerLeases::open_or_create(container, layout, None).await?.list("").await?)
        })?;
        let mut shares = BTreeMap::new();
        let leases = listing.documents.iter().filter_map(|one| Lease::parse(&one.body).ok());
        for lease in leases.filter(|lease| !lease.is_retired()) {
            let Some(owner) = lease.owner else { return Ok(None) };
            *shares.entry(owner).or_default() += 1;
        }
        Ok(Some(shares))
    }

    /// Waits until every lease has an owner, and so many hosts have at least so many.
    fn until_shared(
        &self,
        (kind, leases): (Kind, &str),
        hosts: usize,
        least: usize,
        of: &mut [&mut Hosts],
    ) -> Result<()> {
        let deadline = self.harness.clock.elapsed() + PATIENCE;
        loop {
            let shares = self.shares(kind, leases)?.unwrap_or_default();
            if shares.len() == hosts && shares.values().all(|share| *share >= least) {
                return Ok(());
            }
            of.iter_mut().try_for_each(|hosts| hosts.check_running())?;
            let late = self.harness.clock.elapsed() > deadline;
            ensure!(!late, "hosts ({}) do not share after {PATIENCE:?}: {shares:?}", kind.name());
            self.sleep(BETWEEN_LOOKS * 10)?;
        }
    }

    /// What a container has committed since it was made.
    fn committed(&self, name: &str) -> Result<u64> {
        let container = self.client.container(DATABASE, name);
        let partitions = self.harness.run(async move { Ok(container.partitions().await?) })?;
        Ok(partitions.iter().map(|partition| partition.lsn.get()).sum())
    }

    fn lease_writes(&self) -> Result<Vec<Row>> {
        let mut kinds = vec![Kind::Native, Kind::Shared];
        kinds.extend(self.java.is_ok().then_some(Kind::Java));
        let leases = |kind: Kind| format!("leases-{kind:?}");
        let mut fleets = Vec::new();
        for kind in &kinds {
            fleets.push(self.start(*kind, &leases(*kind), "wide", "a,b,c,d", Settings::Settled)?);
        }
        let share = usize::try_from(RANGES)? / HOSTS;
        for (kind, fleet) in kinds.iter().zip(&mut fleets) {
            self.until_shared((*kind, &leases(*kind)), HOSTS, share - share / 4, &mut [fleet])?;
        }
        self.sleep(FIRST_POSITIONS)?;
        let count = || -> Result<Vec<u64>> {
            kinds.iter().map(|kind| self.committed(&leases(*kind))).collect()
        };
        let (began, before) = (self.harness.clock.elapsed(), count()?);
        self.sleep(WINDOW)?;
        let (ended, after) = (self.harness.clock.elapsed(), count()?);
        fleets.iter_mut().try_for_each(Hosts::check_running)?;
        let minutes = (ended - began).as_secs_f64() / 60.0;
        let rate = |place: usize| Some((after.get(place)? - before.get(place)?) as f64 / minutes);
        let row = |(place, most): (usize, f64)| {
            let name = kinds[place].name();
            let question = format!("the same, counted at a server, {name}");
            Row {
                ours: rate(place),
                hold: Some(Hold::AtMost(Of::Ours, most)),
                others: rate(2).map(|java| ("java", java)).into_iter().collect(),
                ..Row::new(question, Unit::Times).noted(format!(
                    "all at once for {:.0} s{}",
                    minutes * 60.0,
                    self.about_java()
                ))
            }
        };
        Ok([(0, 100.0), (1, 260.0)].map(row).into())
    }

    fn about_java(&self) -> String {
        match self.java {
            Ok(java) => format!("; java is {}", java.version),
            Err(why) => format!("; no column of java: {why}"),
        }
    }

    fn failover(&self, settings: Settings, deaths: u32, most: f64) -> Result<Row> {
        let worst = |kind: Kind| -> Result<f64> {
            let mut worst = Duration::ZERO;
            for number in 0..deaths {
                worst = worst.max(self.death(kind, settings, number)?);
            }
            Ok(worst.as_secs_f64() * 1e3)
        };
        let ours = worst(Kind::Native)?;
        // Whatever stops Java's column, ours stands.
        let java = self.java.is_ok().then(|| worst(Kind::Java)).transpose();
        let (java, about) = match java {
            Ok(java) => (java, self.about_java()),
            Err(why) => (None, format!("; no column of java: {why:#}")),
        };
        let question = format!("kill -9 of a process to progress elsewhere, {}", settings.word());
        let often = if deaths == 1 { "once".to_owned() } else { format!("worst of {deaths}") };
        Ok(Row {
            ours: Some(ours),
            hold: Some(Hold::AtMost(Of::Ours, most * 1e3)),
            others: java.map(|java| ("java", java)).into_iter().collect(),
            ..Row::new(question, Unit::Milliseconds)
                .noted(format!("{often}, {RANGES_TO_MOVE} ranges{about}"))
        })
    }

    /// From the death of one of two hosts until the other has been given changes of all ranges.
    fn death(&self, kind: Kind, settings: Settings, number: u32) -> Result<Duration> {
        let leases = format!("death-{kind:?}-{}-{number}", settings.word());
        let mut victim = self.start(kind, &leases, "narrow", "a", settings)?;
        self.until_shared((kind, &leases), 1, 1, &mut [&mut victim])?;
        let mut heir = self.start(kind, &leases, "narrow", "b", settings)?;
        self.until_shared((kind, &leases), 2, 1, &mut [&mut victim, &mut heir])?;
        let pause = self.harness.clock.random() % 3000;
        self.sleep(Duration::from_secs(3) + Duration::from_millis(pause))?;
        victim.kill()?;
        let died = self.harness.clock.elapsed();
        let ids: Vec<String> = (0..CHANGES).map(|change| format!("{leases}-{change}")).collect();
        let (container, wanted) = (self.client.container(DATABASE, "narrow"), ids.clone());
        self.harness.run(async move {
            for id in &wanted {
                let body = format!(r#"{{"id":"{id}","pk":"{id}"}}"#);
                let key = PartitionKey::from(id.as_str());
                container.upsert(&key, body, &Precondition::None).await?;
            }
            Ok(())
        })?;
        loop {
            let seen = heir.seen()?;
            if ids.iter().all(|id| seen.contains(id)) {
                return Ok(self.harness.clock.elapsed() - died);
            }
            heir.check_running()?;
            let late = self.harness.clock.elapsed() > died + PATIENCE;
            ensure!(!late, "after {PATIENCE:?} the other host ({}) still waits", kind.name());
            self.sleep(BETWEEN_LOOKS)?;
        }
    }
}
