//! `headwater demo`: runs a server in memory, writes orders of a small shop to it and prints their change feed.

use super::tail::reader::{Event, Following, Piece};
use super::tail::rejoin::Waiting;
use super::tail::show::{Change, Printer, Style};
use crate::connect::block_on;
use anyhow::{Context, Result};
use clap::Args;
use headwater_client::{
    Client, Container, Credential, Endpoint, FeedFilter, FeedFrom, Options as ClientOptions,
    Precondition,
};
use headwater_model::{FeedMode, PartitionKey, PartitionKeyValue, Timestamp};
use headwater_runtime::{Random, Runtime, Stop, TaskGroup};
use headwater_server::{Config, Server};
use headwater_store::{Account, Options};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;

const CUSTOMERS: [&str; 8] = ["ann", "bo", "chi", "dora", "emil", "fay", "gus", "hana"];
const GOODS: [(&str, u64); 6] = [
    ("kettle", 3490),
    ("teapot", 2750),
    ("cup", 690),
    ("green tea 100 g", 1120),
    ("filter", 380),
    ("honey", 845),
];
/// States of an order, in their sequence.
const STEPS: [&str; 4] = ["placed", "paid", "packed", "shipped"];
const DEFINITION: &str = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash","version":2},
    "changeFeedPolicy":{"retentionDuration":10}}"#;

/// How long, and how busy.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Number of seconds after which to end
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Number of changes per second
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Number of partitions of the container
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    partitions: u32,
    /// Address of the server; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    http: SocketAddr,
    /// Format of the lines, for people or for programs
    #[arg(long, value_enum, default_value = "text")]
    format: Style,
    /// Watch hosts share the changes instead: two, then a third, then one is killed
    #[arg(long, conflicts_with_all = ["seconds", "partitions", "http", "format"])]
    fleet: bool,
}

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Watch a small shop: a server in memory, incoming orders and their change feed

    headwater demo
    headwater demo --fleet

Orders are placed, paid, packed, shipped, and sometimes cancelled; every change is printed as the feed \
delivers it. Meanwhile the server can be used like any other, for example from a second window with \
`headwater tail` or with an SDK. Ctrl-C ends it, and nothing is kept.

With --fleet, watch hosts of the change feed processor instead: two share the ranges of a container, a third \
joins and gets its share, one is killed and the others take over its ranges.";

/// Runs the demonstration.
pub(crate) fn run(demo: Demo) -> Result<()> {
    if demo.fleet {
        return block_on(super::fleet::run(demo.rate));
    }
    block_on(async {
        let mut options = Options::default();
        options.partitions = demo.partitions;
        options.script_workers = Some(super::script_worker::workers()?);
        let account = Account::ephemeral_with(options).await.context("cannot start in memory")?;
        let mut config = Config::emulator()?;
        config.http = Some(demo.http);
        config.https = None;
        let runtime = Runtime::system();
        let server = Server::start(config, account.clone(), runtime.clone()).await?;
        let shown = show(&demo, &server, &runtime).await;
        server.stop().await;
        account.close().await.context("cannot close the store")?;
        shown
    })
}

async fn show(demo: &Demo, server: &Server, runtime: &Runtime) -> Result<()> {
    let at = server.http().context("the server does not listen")?;
    let endpoint = Endpoint::http(&at.ip().to_string(), at.port());
    let client = Client::new(
        endpoint.clone(),
        Credential::emulator()?,
        ClientOptions::default(),
        runtime.clone(),
    )?;
    client.create_database("shop").await?;
    client.create_container("shop", DEFINITION, None).await?;
    let orders = client.container("shop", "orders");
    eprintln!(
        "a shop with {} partitions at {endpoint}; in another window:\n    headwater tail \
         {endpoint}/shop/orders --from beginning\n    headwater partitions list \
         {endpoint}/shop/orders\nCtrl-C ends it\n",
        demo.partitions
    );
    let tasks = TaskGroup::new(runtime.clone());
    let (sender, mut events) = mpsc::channel(16);
    let mode = FeedMode::AllVersionsAndDeletes;
    // A server waits for open requests before it stops, so feed reads wait only briefly.
    let wait = Duration::from_secs(1);
    let filter = FeedFilter::default();
    let following = Following {
        container: orders.clone(),
        mode,
        filter,
        wait,
        sender,
        waiting: Waiting::default(),
    };
    for range in orders.ranges().await?.iter() {
        let piece = Piece { keys: range.keys.clone(), from: FeedFrom::Beginning };
        following.start(&tasks, piece);
    }
    let pause = Duration::from_secs(1) / demo.rate;
    let shop = Shop { orders, random: Random::seeded(runtime.random()), next: 1, open: Vec::new() };
    let clock = runtime.clone();
    tasks.spawn("shop", |stop| shop.trade(clock, pause, stop));
    let mut printer = Printer::new(Some(demo.format), mode);
    let time = Duration::from_secs(demo.seconds.unwrap_or(u64::from(u32::MAX)));
    let ended = tokio::select! {
        ended = print(&mut events, &mut printer, &following, &tasks) => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
        () = runtime.sleep(time) => Ok(()),
    };
    drop(events);
    let _ = runtime.timeout(Duration::from_secs(1), tasks.shutdown()).await;
    ended
}

async fn print(
    events: &mut mpsc::Receiver<Event>,
    printer: &mut Printer,
    following: &Following,
    tasks: &TaskGroup,
) -> Result<()> {
    while let Some(event) = events.recv().await {
        match event {
            Event::Page(page) => {
                for bytes in &page.changes {
                    if !printer.print(page.range, &Change::of(bytes))? {
                        return Ok(());
                    }
                }
                printer.flush()?;
            }
            Event::Reshaped { pieces, .. } => {
                pieces.into_iter().for_each(|piece| following.start(tasks, piece));
            }
            Event::Note(note) => eprintln!("{note}"),
            Event::Failed(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The workload: places orders and moves them through their states.
struct Shop {
    orders: Container,
    random: Random,
    next: u64,
    /// Orders that are not shipped yet.
    open: Vec<Order>,
}

#[derive(Clone)]
struct Order {
    id: String,
    customer: &'static str,
    goods: Vec<(&'static str, u64, u64)>,
    step: usize,
}

impl Order {
    fn key(&self) -> PartitionKey {
        PartitionKey::from_values([PartitionKeyValue::String(self.customer.to_owned())])
    }

    fn to_json(&self, now: Timestamp) -> String {
        let cents: u64 = self.goods.iter().map(|(_, price, count)| price * count).sum();
        let lines: Vec<_> = self
            .goods
            .iter()
            .map(|(name, _, count)| serde_json::json!({ "name": name, "count": count }))
            .collect();
        format!(
            r#"{{"id":"{}","customer":"{}","status":"{}","total":{}.{:02},"lines":{},"at":"{now}"}}"#,
            self.id,
            self.customer,
            STEPS[self.step],
            cents / 100,
            cents % 100,
            serde_json::Value::from(lines)
        )
    }
}

impl Shop {
    async fn trade(mut self, runtime: Runtime, pause: Duration, stop: Stop) {
        while !stop.is_requested() {
            let now = Timestamp::from_millis(runtime.unix_millis());
            if let Err(error) = self.step(now).await {
                tracing::warn!(%error, "the shop could not write");
            }
            runtime.sleep(pause).await;
        }
    }

    async fn step(&mut self, now: Timestamp) -> Result<()> {
        if self.open.is_empty() || self.random.chance(40) {
            return self.place(now).await;
        }
        let at = self.random.index(self.open.len());
        if self.open[at].step == 0 && self.random.chance(10) {
            let order = self.open.swap_remove(at);
            self.orders.delete(&order.key(), &order.id, &Precondition::None).await?;
            return Ok(());
        }
        self.open[at].step += 1;
        let order = self.open[at].clone();
        self.orders.upsert(&order.key(), order.to_json(now), &Precondition::None).await?;
        if order.step + 1 == STEPS.len() {
            self.open.swap_remove(at);
        }
        Ok(())
    }

    async fn place(&mut self, now: Timestamp) -> Result<()> {
        let goods = (0..=self.random.index(3)).map(|_| {
            let (name, price) = *self.random.pick(&GOODS);
            (name, price, self.random.below(3) + 1)
        });
        let goods = goods.collect();
        let customer = self.random.pick(&CUSTOMERS);
        let order = Order { id: format!("order-{:04}", self.next), customer, goods, step: 0 };
        self.next += 1;
        self.orders.create(&order.key(), order.to_json(now)).await?;
        self.open.push(order);
        Ok(())
    }
}
