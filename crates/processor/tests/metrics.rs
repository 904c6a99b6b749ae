//! Metrics of a processor arrive at an OpenTelemetry collector. The exporter and the decoder are those of the
//! OpenTelemetry project; the collector is a local server that stores what it receives.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

mod support;

use headwater_processor::lease_store::MemoryLeases;
use headwater_processor::source::MemoryFeed;
use headwater_processor::trigger::{TriggerHost, TriggerSettings};
use headwater_processor::{
    Ack, Batch, HandlerError, Metrics, Options, Processor, ScaleMetrics, Start,
};
use headwater_runtime::Runtime;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric::Data, number_data_point};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prost::Message;
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::until;

/// Reads one HTTP message: its first line and its body.
fn message(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                return Some((head.lines().next()?.to_owned(), body));
            }
        }
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
    }
}

/// A collector that stores what it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportMetricsServiceRequest>>>);

fn keep(listener: &TcpListener, kept: &Mutex<Vec<ExportMetricsServiceRequest>>) {
    for mut stream in listener.incoming().map_while(Result::ok) {
        let Some((line, body)) = message(&mut stream) else { continue };
        assert!(line.starts_with("post /v1/metrics"), "{line}");
        kept.lock().unwrap().push(ExportMetricsServiceRequest::decode(&*body).unwrap());
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                      content-length: 0\r\nconnection: close\r\n\r\n";
        let _ = stream.write_all(answer.as_bytes());
    }
}

impl Collector {
    fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let kept = self.0.clone();
        #[allow(clippy::disallowed_methods)] // it answers while the test's own thread waits for it
        std::thread::spawn(move || keep(&listener, &kept)); // tidy: allow, it ends with the process
        format!("http://{address}/v1/metrics")
    }

    /// Returns the newest values by metric name, summed over leases and kinds.
    fn figures(&self) -> BTreeMap<String, f64> {
        let kept = self.0.lock().unwrap();
        let newest = kept.last().unwrap();
        let scopes = newest.resource_metrics.iter().flat_map(|one| &one.scope_metrics);
        let metrics = scopes.flat_map(|scope| &scope.metrics);
        let name = |name: &str| name.strip_prefix("headwater.processor.").unwrap().to_owned();
        metrics.map(|metric| (name(&metric.name), sum(metric.data.as_ref().unwrap()))).collect()
    }
}

fn sum(data: &Data) -> f64 {
    let value = |point: &NumberDataPoint| {
        let named = |name: &str| point.attributes.iter().any(|one| one.key == name);
        assert!(named("headwater.processor.name"), "{point:?}");
        match point.value.as_ref().unwrap() {
            number_data_point::Value::AsInt(value) => *value as f64,
            number_data_point::Value::AsDouble(value) => *value,
        }
    };
    match data {
        Data::Sum(sum) => sum.data_points.iter().map(value).sum(),
        Data::Gauge(gauge) => gauge.data_points.iter().map(value).sum(),
        Data::Histogram(all) => all.data_points.iter().map(|point| point.count as f64).sum(),
        other => panic!("an unexpected kind of metric: {other:?}"),
    }
}

/// An HTTP client that opens a connection per request.
#[derive(Debug)]
struct Plain;

impl HttpClient for Plain {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let mut stream = TcpStream::connect(request.uri().authority().unwrap().as_str())?;
            let (path, body) = (request.uri().path(), request.body());
            let length = body.len();
            write!(stream, "POST {path} HTTP/1.1\r\ncontent-length: {length}\r\n\r\n")?;
            stream.write_all(body)?;
            let answer = message(&mut stream).ok_or("no answer")?;
            assert!(answer.0.contains("200"), "{}", answer.0);
            Ok(Response::new(Bytes::new()))
        })
    }
}

/// Creates a meter provider that exports to the collector.
fn sends_to(collector: &Collector) -> SdkMeterProvider {
    let exporter = MetricExporter::builder()
        .with_http()
        .with_http_client(Plain)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(collector.listen())
        .build()
        .unwrap();
    SdkMeterProvider::builder().with_periodic_exporter(exporter).build()
}

#[tokio::test]
async fn what_happens_is_reported_to_a_collector() {
    let collector = Collector::default();
    let provider = sends_to(&collector);
    let figures = || {
        provider.force_flush().unwrap();
        collector.figures()
    };

    let feed = MemoryFeed::new(Runtime::system(), 2);
    for number in 0..10 {
        feed.put(&format!("k{number}"), &[(&number.to_string(), "x")]);
    }
    let (calls, held) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(true)));
    let (counted, holds) = (calls.clone(), held.clone());
    let mut options = Options::native("mailer");
    options.start = Start::Beginning;
    options.acquire_interval = Duration::from_millis(100);
    let options = options.on_event(Metrics::new(&provider.meter("test"), "mailer"));
    let processor = Processor::builder()
        .source(feed.clone())
        .leases(MemoryLeases::new(Runtime::system()))
        .handler(move |_: Batch| {
            let (counted, holds) = (counted.clone(), holds.clone());
            async move {
                // The first call fails; the others wait until they are released.
                if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err(HandlerError::new("not yet"));
                }
                until(|| !holds.load(Ordering::SeqCst)).await;
                Ok(Ack::Done)
            }
        })
        .options(options)
        .build()
        .unwrap();
    let running = processor.start().await.unwrap();
    until(|| figures().get("lag.transactions").is_some_and(|lag| *lag >= 10.0)).await;
    let seen = figures();
    assert_eq!((seen["leases"], seen["leases.acquired"]), (2.0, 2.0), "{seen:?}");
    assert_eq!((seen["read.changes"], seen["handler.failures"]), (10.0, 1.0), "{seen:?}");
    assert!(!seen.contains_key("handled.changes"), "nothing is handled yet: {seen:?}");

    held.store(false, Ordering::SeqCst);
    until(|| figures().get("lag.transactions") == Some(&0.0)).await;
    let seen = figures();
    assert_eq!((seen["handled.changes"], seen["lag.time"]), (10.0, 0.0), "{seen:?}");
    assert!(seen["checkpoints"] >= 2.0 && seen["handler.duration"] >= 2.0, "{seen:?}");
    running.stop().await;
    let seen = figures();
    assert_eq!((seen["leases"], seen["leases.closed"]), (0.0, 2.0), "{seen:?}");
    assert!(
        !seen.contains_key("lag.transactions"),
        "a lease that is not owned has no lag: {seen:?}"
    );
    provider.shutdown().unwrap();
}

#[tokio::test]
async fn how_many_hosts_a_trigger_needs_is_reported_to_a_collector() {
    let collector = Collector::default();
    let provider = sends_to(&collector);
    let figures = || {
        provider.force_flush().unwrap();
        let seen = collector.figures();
        ["lag", "leases", "workers", "instances"]
            .map(|name| seen.get(&format!("scale.{name}")).copied())
    };
    let feed = MemoryFeed::new(Runtime::system(), 2);
    for number in 0..60 {
        feed.put(&format!("k{number}"), &[(&number.to_string(), "x")]);
    }
    let held = Arc::new(AtomicBool::new(true));
    let holds = held.clone();
    let mut settings = TriggerSettings::new("shop", "orders");
    (settings.start, settings.items_max) = (Start::Beginning, Some(10));
    let host = TriggerHost::builder(settings)
        .source(feed)
        .leases(MemoryLeases::new(Runtime::system()))
        .function("mailer", move |_: Batch| {
            let holds = holds.clone();
            async move {
                until(|| !holds.load(Ordering::SeqCst)).await;
                Ok(())
            }
        })
        .build()
        .unwrap();
    let scaler = host.scaler().await.unwrap();
    let metrics = ScaleMetrics::new(&provider.meter("test"), "mailer");
    // No host has started yet, so one should.
    metrics.set(Some(scaler.measure().await.unwrap()));
    assert_eq!(figures(), [Some(1.0), Some(0.0), Some(0.0), Some(1.0)]);

    let running = host.start().await.unwrap();
    until(|| running.report().owned.len() == 2).await;
    let follow = metrics.follow(&scaler, Duration::from_millis(50));
    let watched = async {
        // 60 changes wait, 10 per call, but there are two leases. Without a position the legacy lag is 1 per lease.
        until(|| figures() == [Some(2.0), Some(2.0), Some(1.0), Some(2.0)]).await;
        held.store(false, Ordering::SeqCst);
        until(|| figures() == [Some(0.0), Some(2.0), Some(1.0), Some(0.0)]).await;
    };
    tokio::select! { () = follow => {}, () = watched => {} }
    metrics.set(None);
    running.stop().await;
    provider.shutdown().unwrap();
}
