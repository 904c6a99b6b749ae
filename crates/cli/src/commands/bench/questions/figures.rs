//! What the rounds of one question found out, and the row it becomes.

use crate::commands::bench::harness::Series;
use crate::commands::bench::peers::Measured;
use crate::commands::bench::report::{Hold, Row, Unit};
use anyhow::Result;

/// One figure per round of everybody.
#[derive(Debug, Default)]
pub(super) struct Figures {
    ours: Series,
    limit: Series,
    ratio: Series,
    others: Vec<(&'static str, Series)>,
}

impl Figures {
    /// Ours, where there is no limit to compare it with.
    pub(super) fn add(&mut self, ours: f64) {
        self.ours.push(ours);
    }

    /// Ours, and the limit as it was in the same round.
    pub(super) fn add_limited(&mut self, ours: f64, limit: f64) {
        self.ours.push(ours);
        self.limit.push(limit);
        self.ratio.push(ours / limit);
    }

    pub(super) fn add_peer(&mut self, name: &'static str, value: f64) {
        match self.others.iter_mut().find(|(known, _)| *known == name) {
            Some((_, series)) => series.push(value),
            None => {
                let mut series = Series::default();
                series.push(value);
                self.others.push((name, series));
            }
        }
    }

    /// Asks every peer the same.
    pub(super) fn add_peers(
        &mut self,
        peers: &mut [Measured],
        ask: impl Fn(&mut Measured) -> Result<f64>,
    ) -> Result<()> {
        for peer in peers {
            let value = ask(peer)?;
            self.add_peer(peer.name(), value);
        }
        Ok(())
    }

    pub(super) fn into_row(self, question: &str, unit: Unit, hold: Option<Hold>) -> Row {
        Row {
            ours: self.ours.median(),
            limit: self.limit.median(),
            ratio: self.ratio.median(),
            hold,
            others: (self.others.iter())
                .filter_map(|(name, series)| Some((*name, series.median()?)))
                .collect(),
            ..Row::new(question, unit)
        }
    }
}
