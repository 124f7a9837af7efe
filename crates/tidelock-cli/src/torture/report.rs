//! What a run tells in the end: the verdict, how much was checked, and each violation.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    check::{Counts, Findings, Rule},
    history::History,
    story, timeline,
};

/// The report, as other programs read it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    verdict: &'static str,
    store: String,
    seed: u64,
    /// Broken promises by rule.
    violations: Vec<Broken>,
    /// Overlaps where the deployment does not promise to exclude them.
    overlaps_allowed: u64,
    counts: Counts,
    stories: Vec<Story>,
    /// What could not be done to this deployment.
    skipped: Vec<String>,
    folder: PathBuf,
}

#[derive(Debug, Serialize)]
struct Broken {
    rule: Rule,
    times: u64,
}

#[derive(Debug, Serialize)]
struct Story {
    rule: Rule,
    text: String,
    /// The kind of the last fault before it.
    fault: Option<String>,
    timeline: PathBuf,
}

impl Report {
    /// Writes the report and the pictures into the folder.
    pub(super) fn write(
        history: &History,
        findings: &Findings,
        skipped: Vec<String>,
        folder: &Path,
    ) -> io::Result<Self> {
        let mut stories = Vec::new();
        for (number, violation) in (1..).zip(&findings.violations) {
            let timeline = folder.join(format!("violation-{number}.svg"));
            fs::write(&timeline, timeline::draw(history, violation))?;
            let text = story::tell(history, violation);
            let last = history.faults.iter().filter(|fault| fault.began <= violation.at);
            let fault = last.max_by_key(|fault| fault.began).map(|fault| fault.kind.clone());
            stories.push(Story { rule: violation.rule, text, fault, timeline });
        }
        let report = Self {
            verdict: if findings.is_clean() { "clean" } else { "violations" },
            store: history.plan.store.clone(),
            seed: history.plan.seed,
            violations: findings
                .totals
                .iter()
                .map(|(rule, times)| Broken { rule: *rule, times: *times })
                .collect(),
            overlaps_allowed: findings.overlaps_allowed,
            counts: findings.counts.clone(),
            stories,
            skipped,
            folder: folder.to_owned(),
        };
        fs::write(folder.join("report.json"), serde_json::to_string_pretty(&report)? + "\n")?;
        fs::write(folder.join("report.txt"), report.to_text())?;
        Ok(report)
    }

    /// As people read it.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        let counts = &self.counts;
        let faults: u64 = counts.faults.iter().map(|count| count.times).sum();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{}: {} requests in {:.0} s on {}, {} granted, {faults} faults, seed {}",
            if self.violations.is_empty() { "clean" } else { "VIOLATIONS" },
            counts.operations,
            counts.seconds,
            self.store,
            counts.grants,
            self.seed
        );
        let _ = writeln!(
            text,
            "answers: {} refused, {} timed out, {} gave up, {} failed, {} of killed clients; {} holds lost, {} broken",
            counts.refused,
            counts.timed_out,
            counts.gave_up,
            counts.failed,
            counts.killed_while_waiting,
            counts.lost,
            counts.broken
        );
        let _ = writeln!(
            text,
            "fence: {} writes accepted, {} stale writes refused",
            counts.writes_accepted, counts.writes_refused
        );
        let _ = writeln!(
            text,
            "time: {:.0} s were calm; order was checked with {} requests seen in a queue",
            counts.calm_seconds, counts.seen_in_queue
        );
        if let (Some(before), Some(after)) = (counts.entries_before, counts.entries_after) {
            let _ = writeln!(text, "store: {before} entries before, {after} after");
        }
        for count in &counts.faults {
            let _ = writeln!(
                text,
                "fault {}: {} times; the next grant at most {} ms after one was healed",
                count.kind, count.times, count.longest_until_grant_ms
            );
        }
        if self.overlaps_allowed > 0 {
            let _ =
                writeln!(text, "overlaps, which this deployment does not exclude: {}", self.overlaps_allowed);
        }
        for why in &self.skipped {
            let _ = writeln!(text, "skipped: {why}");
        }
        for Broken { rule, times } in &self.violations {
            let _ = writeln!(text, "violated {times} times: {rule}");
        }
        for story in &self.stories {
            let _ = write!(text, "\n{}  timeline: {}\n", story.text, story.timeline.display());
        }
        let _ = writeln!(text, "histories and report: {}", self.folder.display());
        text
    }
}
