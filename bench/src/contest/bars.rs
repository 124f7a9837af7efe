//! How good a lock has to be.

use super::{
    results::{Bar, Kind, Row},
    scenario::MUTEX,
};

/// Against whom a bar is.
#[derive(Clone, Copy, Debug)]
enum Against {
    Bare,
    /// A row of the same scenario.
    Named(&'static str),
    /// Our own row of another scenario.
    Ours(&'static str),
}

/// In a scenario of a store, or of each store if none is named, ours has to be so many times as good.
const BARS: &[(&str, &str, Against, f64)] = &[
    ("memory", "pair", Against::Bare, 1.0 / 20.0),
    ("memory", "tasks", Against::Bare, 0.2),
    ("memory-2-threads", "pair", Against::Bare, 1.0 / 20.0),
    ("memory-2-threads", "tasks", Against::Bare, 0.2),
    ("file", "pair", Against::Bare, 1.0 / 3.0),
    ("redis", "pair", Against::Bare, 1.0 / 1.3),
    ("redis", "tasks", Against::Named("rslock"), 10.0),
    ("redis", "processes", Against::Bare, 0.7),
    ("redis", "distinct", Against::Bare, 0.7),
    ("redis", "flash-sale", Against::Bare, 0.6),
    ("redis", "flash-sale", Against::Named("tidelock, one lock"), 20.0),
    ("redlock", "pair", Against::Bare, 1.0 / 2.2),
    ("etcd", "pair", Against::Bare, 1.0 / 1.15),
    ("etcd", "processes", Against::Named("etcd-concurrency"), 1.5),
    ("zookeeper", "pair", Against::Bare, 1.0 / 1.2),
    ("postgres", "pair", Against::Bare, 1.0 / 1.6),
    ("postgres", "tasks", Against::Ours("pair"), 20.0),
    ("postgres", "processes", Against::Named("row polled every 100 ms"), 5.0),
    ("mysql", "pair", Against::Bare, 1.0 / 1.4),
    ("mysql", "tasks", Against::Ours("pair"), 20.0),
    ("mysql", "processes", Against::Named("row polled every 100 ms"), 5.0),
    // Who leads next is a hand-over and what is advertised with it.
    ("", "election", Against::Named(MUTEX), 1.0 / 1.3),
];

/// tidelock in other languages, and the libraries of the same language that it has to be ahead of.
const LANGUAGES: &[(&str, &[&str])] = &[
    ("tidelock (Python)", &["redis-py", "python-redis-lock", "pottery"]),
    ("tidelock (Node)", &["node-redlock"]),
];
const OF_LANGUAGES: [&str; 3] = ["pair", "tasks", "processes"];

/// Processes that want the same lock get it equally often.
const FAIR: f64 = 0.95;

/// What is written as 1.00.
const AS_GOOD: f64 = 0.995;

/// Says of each row whether it is as good as it must be: against peers always at least as good.
pub(super) fn judge(store: &str, rows: &mut [Row]) {
    let ours: Vec<Row> = rows.iter().filter(|row| row.kind == Kind::Ours).cloned().collect();
    let of_languages: Vec<Option<Bar>> = rows.iter().map(|row| of_language(row, rows)).collect();
    for (row, of_language) in rows.iter_mut().zip(of_languages) {
        row.bar = of_language;
        let is_for = |of: &str| of.is_empty() || of == store;
        let bars = BARS.iter().filter(|(of, scenario, _, _)| is_for(of) && *scenario == row.scenario);
        for (_, _, against, least) in bars {
            let ratio = match (against, row.kind) {
                (Against::Bare, Kind::Bare) => row.ahead.map(|ahead| ahead.median),
                (Against::Named(name), Kind::Peer) if row.contestant == *name => {
                    row.ahead.map(|ahead| ahead.median)
                }
                (Against::Ours(other), Kind::Ours) => {
                    let other = ours.iter().find(|row| row.scenario == *other).and_then(|row| row.value);
                    (|| Some(row.value?.median / other?.median))()
                }
                _ => continue,
            };
            // Who took no part cannot be compared with.
            let Some(ratio) = ratio else { continue };
            let text = match against {
                Against::Ours(other) => format!("≥ {least} × {other} (is {ratio:.0})"),
                _ => format!("≥ {}", short(*least)),
            };
            row.bar = Some(Bar { text, met: ratio >= *least });
        }
        // Nobody who needs leases and tokens would take a map of mutexes for a peer.
        if row.kind == Kind::Peer
            && row.bar.is_none()
            && !is_ours(&row.contestant)
            && !store.starts_with("memory")
            && let Some(ahead) = row.ahead
        {
            row.bar = Some(Bar { text: "≥ 1".to_owned(), met: ahead.median >= AS_GOOD });
        }
        if row.kind == Kind::Ours
            && let Some(fairness) = row.fairness
        {
            row.bar = Some(Bar { text: format!("fairness ≥ {FAIR}"), met: fairness >= FAIR });
        }
    }
}

/// The bar of tidelock in another language: the best library of that language in the same run.
fn of_language(row: &Row, rows: &[Row]) -> Option<Bar> {
    let (_, others) = LANGUAGES.iter().find(|(name, _)| row.contestant == *name)?;
    let value = row.value?.median;
    let beside = |other: &&Row| other.scenario == row.scenario && others.contains(&other.contestant.as_str());
    let medians = rows.iter().filter(beside).filter_map(|other| Some((other.value?.median, other)));
    let (best, other) = medians.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let text = format!("≥ 1 × {} (is {:.2})", other.contestant, value / best);
    OF_LANGUAGES.contains(&row.scenario.as_str()).then(|| Bar { text, met: value / best >= AS_GOOD })
}

/// Whether a contestant is tidelock in another language: compared with others, and not with itself.
pub(super) fn is_ours(contestant: &str) -> bool {
    contestant.starts_with("tidelock (")
}

fn short(ratio: f64) -> String {
    let text = format!("{ratio:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::{results::Unit, spread::Spread};

    fn row(kind: Kind, contestant: &str, ahead: Option<f64>) -> Row {
        Row {
            scenario: "pair".to_owned(),
            contestant: contestant.to_owned(),
            kind,
            unit: Unit::PerSecond,
            value: Spread::of(vec![1.0]),
            ahead: ahead.and_then(|ahead| Spread::of(vec![ahead])),
            before: None,
            waits_us: None,
            fairness: None,
            note: String::new(),
            bar: None,
        }
    }

    #[test]
    fn a_peer_that_is_ahead_misses_the_bar() {
        let mut rows = [
            row(Kind::Ours, "tidelock", None),
            row(Kind::Bare, "bare commands", Some(0.5)),
            row(Kind::Peer, "slower", Some(1.2)),
            row(Kind::Peer, "faster", Some(0.9)),
        ];
        judge("redis", &mut rows);
        let met: Vec<_> = rows.iter().map(Row::is_met).collect();
        assert_eq!(met, [true, false, true, false]);
        assert_eq!(rows[1].bar.as_ref().unwrap().text, "≥ 0.77");
    }

    #[test]
    fn another_language_is_compared_with_its_own_libraries() {
        let of = |contestant: &str, value: f64| Row {
            value: Spread::of(vec![value]),
            ..row(Kind::Peer, contestant, Some(1.0))
        };
        for (value, met) in [(9.0, false), (11.0, true)] {
            let mut rows = [
                of("tidelock (Python)", value),
                of("redis-py", 10.0),
                of("pottery", 5.0),
                of("node-redlock", 99.0),
            ];
            judge("redis", &mut rows);
            assert_eq!(rows[0].is_met(), met);
            assert!(rows[0].bar.as_ref().unwrap().text.contains("redis-py"));
        }
    }
}
