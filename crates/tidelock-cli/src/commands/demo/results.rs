//! What came of the sales.

use std::path::Path;

use serde::Serialize;

use super::{
    buyers::{Done, SLICE},
    way::Way,
};
use crate::{args::FlashSale, output};

/// The points of a time line: more cannot be seen.
const POINTS: usize = 200;

/// All sales.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) store: String,
    pub(super) buyers: u32,
    pub(super) stock: u32,
    pub(super) processes: u32,
    pub(super) segments: u32,
    pub(super) ways: Vec<Outcome>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) left_out: Vec<String>,
}

/// One sale.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) way: Way,
    pub(super) sold: u32,
    pub(super) oversold: u32,
    /// What the books say is left.
    pub(super) left: u64,
    pub(super) seconds: f64,
    pub(super) buyers_per_second: f64,
    pub(super) wait_ms: WaitMillis,
    /// Seconds, and how many were sold by then.
    pub(super) sold_over_time: Vec<(f64, u32)>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct WaitMillis {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Outcome {
    pub(super) fn new(way: Way, args: &FlashSale, done: &[Done], left: u64) -> Self {
        let mut all = Done::default();
        done.iter().for_each(|done| all.add(done));
        let millis = |part| (all.waits.percentile(part) * 1e6).round() / 1e3;
        let mut sold = 0;
        let mut line = vec![(0.0, 0)];
        let every = all.slices.len().div_ceil(POINTS).max(1);
        for (index, slices) in all.slices.chunks(every).enumerate() {
            sold += slices.iter().sum::<u32>();
            let end = (index * every + slices.len()) as f64 * SLICE.as_secs_f64();
            // The last slice may have been cut short.
            line.push((((end * 1e3).round() / 1e3).min(all.seconds), sold));
        }
        line.push((all.seconds, sold));
        Self {
            way,
            sold: all.sold,
            oversold: all.sold.saturating_sub(args.stock),
            left,
            seconds: all.seconds,
            buyers_per_second: f64::from(all.served) / all.seconds.max(1e-9),
            wait_ms: WaitMillis { p50: millis(0.5), p99: millis(0.99), max: millis(1.0) },
            sold_over_time: line,
        }
    }
}

impl Results {
    pub(super) fn new(args: &FlashSale, store: &str) -> Self {
        Self {
            store: store.to_owned(),
            buyers: args.buyers,
            stock: args.stock,
            processes: args.processes,
            segments: args.segments,
            ways: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Whether every way that promises so sold what there was and no more.
    pub(super) fn keeps_its_promise(&self) -> bool {
        let wanted = self.buyers.min(self.stock);
        self.ways.iter().filter(|outcome| outcome.way.is_safe()).all(|outcome| outcome.sold == wanted)
    }

    pub(super) fn to_text(&self, chart: &Path) -> String {
        let mut text = format!(
            "{} buyers from {} processes want one of {} each; the store is {}.\n\n",
            self.buyers, self.processes, self.stock, self.store
        );
        let rows: Vec<_> = self
            .ways
            .iter()
            .map(|outcome| {
                let WaitMillis { p50, p99, max } = outcome.wait_ms;
                let title = match outcome.way {
                    Way::Segments => format!("{} segments", self.segments),
                    way => way.title().to_owned(),
                };
                [
                    title,
                    outcome.sold.to_string(),
                    if outcome.oversold > 0 {
                        format!("{} OVERSOLD", outcome.oversold)
                    } else {
                        "0".to_owned()
                    },
                    format!("{:.2} s", outcome.seconds),
                    format!("{:.0}", outcome.buyers_per_second),
                    millis(p50),
                    millis(p99),
                    millis(max),
                ]
            })
            .collect();
        let head = ["WAY", "SOLD", "TOO MANY", "TIME", "BUYERS/S", "WAIT P50", "P99", "MAX"];
        text.push_str(&output::table(head, &rows));
        for why in &self.left_out {
            text.push_str(&format!("left out: {why}\n"));
        }
        text.push_str(&format!("\nThe chart is in {}.\n", chart.display()));
        text
    }
}

pub(super) fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}
