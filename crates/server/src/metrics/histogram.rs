//! Encodes histograms for Prometheus: latencies by operation, and those of the store.

use headwater_protocol::operation::Operation;
use headwater_store::{Histogram, HistogramFigures};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;
/// Upper bounds of request latencies in nanoseconds, from a durable write on a fast disk to a long poll.
const LATENCIES: [u64; 15] = [
    MILLISECOND / 10,
    MILLISECOND / 4,
    MILLISECOND / 2,
    MILLISECOND,
    5 * MILLISECOND / 2,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    1_000 * MILLISECOND,
    2_500 * MILLISECOND,
    10_000 * MILLISECOND,
    60_000 * MILLISECOND,
];
/// The label of requests without an operation: health, metrics, and those refused before classification.
const OTHER: &str = "other";

/// Latency histograms by operation. Clones share the same histograms.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// Indexed by operation number; the last one is for requests without an operation.
    histograms: Arc<[Histogram]>,
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        let histograms = (0..=Operation::COUNT).map(|_| Histogram::new(&LATENCIES)).collect();
        Latencies { histograms }
    }

    pub(super) fn observe(&self, operation: Option<Operation>, took: Duration) {
        let number = operation.map_or(Operation::COUNT, Operation::number);
        self.histograms[number].observe_duration(took);
    }
}

/// Encodes only operations that occurred.
impl EncodeMetric for Latencies {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let names = Operation::all().map(|operation| operation.to_string());
        for (name, histogram) in names.chain([OTHER.to_owned()]).zip(&*self.histograms) {
            let figures = histogram.figures();
            if figures.count() > 0 {
                let labels = [("operation", name)];
                encode_in_seconds(&figures, encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// A histogram of nanoseconds, encoded in seconds.
#[derive(Debug)]
pub(super) struct Seconds(pub(super) HistogramFigures);

impl EncodeMetric for Seconds {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encode_in_seconds(&self.0, encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// A histogram of counts.
#[derive(Debug)]
pub(super) struct Counts(pub(super) HistogramFigures);

impl EncodeMetric for Counts {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encode(&self.0, 1.0, encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn encode_in_seconds(
    figures: &HistogramFigures,
    encoder: MetricEncoder<'_>,
) -> Result<(), fmt::Error> {
    encode(figures, 1e9, encoder)
}

fn encode(
    figures: &HistogramFigures,
    unit: f64,
    mut encoder: MetricEncoder<'_>,
) -> Result<(), fmt::Error> {
    let bounds = figures.bounds.iter().map(|bound| *bound as f64 / unit).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(figures.counts.iter().copied()).collect();
    let sum = figures.sum as f64 / unit;
    encoder.encode_histogram::<NoLabelSet>(sum, figures.count(), &buckets, None)
}
