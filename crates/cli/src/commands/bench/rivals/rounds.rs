//! Figures of rounds become rows: whom a row compares with, and whether it is where it should be.

use super::catalogue::Peer;
use crate::commands::bench::harness::Series;
use crate::commands::bench::report::{Hold, Of, Row, Unit};

/// What everybody reached in one round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) ours: f64,
    pub(super) others: Vec<(Peer, f64)>,
}

/// Which end of a scale is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
}

/// Something that was asked in every round.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) rounds: Vec<Round>,
    pub(super) better: Better,
    pub(super) unit: Unit,
}

impl Question {
    /// Compares with the best of some peers and shows all of them.
    pub(super) fn all(&self, title: &str, peers: &[Peer], bound: Option<f64>) -> Row {
        let others = Peer::ALL.into_iter().filter_map(|peer| {
            let mut series = Series::default();
            self.rounds
                .iter()
                .filter_map(|round| best(round, &[peer], self.better))
                .for_each(|value| series.push(value));
            Some((peer.name(), series.median()?))
        });
        Row { others: others.collect(), ..self.against(title, peers, bound) }
    }

    /// Compares with the best of some peers, round by round. Without any of them nothing holds or fails.
    pub(super) fn against(&self, title: &str, peers: &[Peer], bound: Option<f64>) -> Row {
        let (mut ours, mut limit, mut ratio) =
            (Series::default(), Series::default(), Series::default());
        for round in &self.rounds {
            ours.push(round.ours);
            if let Some(best) = best(round, peers, self.better) {
                limit.push(best);
                ratio.push(round.ours / best);
            }
        }
        let row = Row {
            ours: ours.median(),
            limit: limit.median(),
            ratio: ratio.median(),
            ..Row::new(format!("{} ÷ {title}", self.text), self.unit)
        };
        let hold = bound.map(|bound| match self.better {
            Better::Higher => Hold::AtLeast(Of::Ratio, bound),
            Better::Lower => Hold::AtMost(Of::Ratio, bound),
        });
        match row.limit {
            Some(_) => Row { hold, ..row },
            None => row.noted("there was nobody to compare with, so this neither holds nor fails"),
        }
    }
}

/// The hardest to beat of those who took part.
fn best(round: &Round, peers: &[Peer], better: Better) -> Option<f64> {
    let known = round.others.iter().filter(|(peer, _)| peers.contains(peer));
    let values = known.map(|(_, value)| *value);
    match better {
        Better::Higher => values.max_by(f64::total_cmp),
        Better::Lower => values.min_by(f64::total_cmp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(better: Better) -> Question {
        let round = |ours, vercel, cosmium| Round {
            ours,
            others: vec![(Peer::CosmosdbServer, vercel), (Peer::Cosmium, cosmium)],
        };
        let rounds = vec![round(10.0, 4.0, 5.0), round(30.0, 10.0, 2.0), round(8.0, 2.0, 1.0)];
        Question { text: "writes".to_owned(), rounds, better, unit: Unit::PerSecond }
    }

    const COSMOS: &[Peer] = &[Peer::CosmosdbServer, Peer::Cosmium];

    #[test]
    fn a_row_compares_with_the_best_of_each_round() {
        let row = question(Better::Higher).all("best", COSMOS, Some(2.5));
        assert_eq!(row.question, "writes ÷ best");
        assert_eq!((row.ours, row.limit, row.ratio), (Some(10.0), Some(5.0), Some(3.0)));
        assert_eq!(row.hold, Some(Hold::AtLeast(Of::Ratio, 2.5)));
        assert_eq!(row.others, [("cosmosdb-server", 4.0), ("cosmium", 2.0)]);
    }

    #[test]
    fn where_less_is_better_the_best_is_the_lowest() {
        let row = question(Better::Lower).against("smallest", COSMOS, Some(0.2));
        assert_eq!((row.limit, row.ratio), (Some(2.0), Some(8.0)));
        assert_eq!(row.hold, Some(Hold::AtMost(Of::Ratio, 0.2)));
        assert!(row.others.is_empty());
    }

    #[test]
    fn a_peer_that_left_counts_in_the_rounds_it_was_in() {
        let mut question = question(Better::Higher);
        question.rounds[2].others.clear();
        let row = question.against("best", COSMOS, Some(2.0));
        assert_eq!((row.ours, row.ratio), (Some(10.0), Some(2.5)));
    }

    #[test]
    fn without_a_peer_nothing_holds_or_fails() {
        let row = question(Better::Higher).against("PostgreSQL", &[Peer::Postgres], Some(2.0));
        assert_eq!((row.ours, row.limit, row.ratio), (Some(10.0), None, None));
        assert!(row.hold.is_none() && row.note.contains("nobody"), "{row:?}");
    }
}
