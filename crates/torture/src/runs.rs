//! The record of runs: a line of JSON for each, with the digest of its histories. Figures in a page are the sums over it,
//! so that a million requests may be made in several sittings.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

/// What one run was, beside its report.
pub(crate) struct About<'a> {
    pub(crate) deployment: &'a str,
    pub(crate) clients: u32,
    pub(crate) ttl_ms: u64,
}

/// Adds the run whose report is in `folder` to the record.
pub(crate) fn add(record: &Path, about: &About<'_>, folder: &Path) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", record.display());
    let text = fs::read_to_string(folder.join("report.json"))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", folder.display()))?;
    let digest = digest(folder)?;
    if runs(record)?.iter().any(|run| run["digest"] == digest.as_str()) {
        return Err(format!("{}: this run is in {} already", folder.display(), record.display()));
    }
    let line = json!({
        "deployment": about.deployment,
        "server": server(about.deployment),
        "date": output("date", &["+%Y-%m-%d"])?,
        "commit": output("git", &["rev-parse", "--short", "HEAD"])?,
        "clients": about.clients,
        "ttl_ms": about.ttl_ms,
        "seed": report["seed"],
        "counts": report["counts"],
        "violations": report["violations"],
        "overlaps_allowed": report["overlaps_allowed"],
        "digest": digest,
    });
    let mut file = OpenOptions::new().create(true).append(true).open(record).map_err(said)?;
    // A line is one write, so that two who add at the same time do not mix.
    file.write_all(format!("{line}\n").as_bytes()).map_err(said)
}

/// The version of the servers that a deployment has, or of the system.
fn server(deployment: &str) -> Option<String> {
    let (program, args): (_, &[&str]) = match deployment.split('-').next()? {
        "redis" | "redlock" => ("redis-server", &["--version"]),
        "etcd" => ("etcd", &["--version"]),
        "zookeeper" => ("dpkg-query", &["--show", "--showformat=${Version}", "zookeeper"]),
        "postgres" => ("psql", &["--version"]),
        "mysql" => ("mariadb", &["--version"]),
        _ => ("uname", &["--kernel-release"]),
    };
    number(&output(program, args).ok()?)
}

/// The first version in a text. MariaDB's client says its own before that of the server.
fn number(text: &str) -> Option<String> {
    let text = text.split_once("Distrib ").map_or(text, |(_, rest)| rest);
    let words = text.split(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    words.map(|word| word.trim_matches('.')).find(|word| word.contains('.')).map(ToOwned::to_owned)
}

/// All runs of a record, in the order in which they were added.
fn runs(record: &Path) -> Result<Vec<Value>, String> {
    let Ok(text) = fs::read_to_string(record) else { return Ok(Vec::new()) };
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", record.display(), number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// SHA-256 over the histories, in the order of their names.
fn digest(folder: &Path) -> Result<String, String> {
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut histories: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(said)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    if histories.is_empty() {
        return Err(format!("{}: there are no histories", folder.display()));
    }
    histories.sort();
    let mut sum =
        Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(said)?;
    let mut input = sum.stdin.take().ok_or("sha256sum does not read")?;
    for history in histories {
        let mut file = fs::File::open(history).map_err(said)?;
        std::io::copy(&mut file, &mut input).map_err(said)?;
    }
    drop(input);
    let output = sum.wait_with_output().map_err(said)?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split(' ')
        .next()
        .filter(|digest| digest.len() == 64)
        .map(ToOwned::to_owned)
        .ok_or_else(|| text.to_string())
}

fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The sums over all runs of a deployment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// The versions of its servers.
    pub(crate) servers: BTreeSet<String>,
    pub(crate) runs: u64,
    pub(crate) seconds: u64,
    pub(crate) requests: u64,
    pub(crate) grants: u64,
    pub(crate) faults: u64,
    pub(crate) violations: u64,
    pub(crate) overlaps_allowed: u64,
    pub(crate) stale_writes_refused: u64,
    /// By kind: how often, and the longest time from an end to the next grant in milliseconds.
    pub(crate) kinds: BTreeMap<String, (u64, u64)>,
}

/// What a run notes when the store was slow on its own: nobody caused it, so it does not count as a fault.
pub(crate) const SLOW: &str = "slow";

/// What is on record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) deployments: BTreeMap<String, Sums>,
    pub(crate) days: BTreeSet<String>,
}

/// Adds up the runs of a record.
pub(crate) fn sums(record: &Path) -> Result<Record, String> {
    let mut all = Record::default();
    for run in runs(record)? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let counts = &run["counts"];
        let sums = all.deployments.entry(text(&run["deployment"])).or_default();
        sums.servers.extend(run["server"].as_str().map(ToOwned::to_owned));
        sums.runs += 1;
        sums.seconds += counts["seconds"].as_f64().unwrap_or_default().round() as u64;
        sums.requests += number(&counts["operations"]);
        sums.grants += number(&counts["grants"]);
        sums.overlaps_allowed += number(&run["overlaps_allowed"]);
        sums.stale_writes_refused += number(&counts["writes_refused"]);
        let violations = run["violations"].as_array().into_iter().flatten();
        sums.violations += violations.map(|violation| number(&violation["times"])).sum::<u64>();
        for fault in counts["faults"].as_array().into_iter().flatten() {
            let (name, times) = (text(&fault["kind"]), number(&fault["times"]));
            sums.faults += if name == SLOW { 0 } else { times };
            let kind = sums.kinds.entry(name).or_default();
            *kind = (kind.0 + times, kind.1.max(number(&fault["longest_until_grant_ms"])));
        }
        all.days.insert(text(&run["date"]));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(folder: &Path, seed: u64, history: &str) {
        fs::create_dir_all(folder).unwrap();
        let faults = json!([
            { "kind": "kill", "times": 2, "longest_until_grant_ms": 10 * seed },
            { "kind": SLOW, "times": 5, "longest_until_grant_ms": 1 },
        ]);
        let counts = json!({
            "operations": 100, "grants": 60, "writes_refused": 1, "faults": faults, "seconds": 1.6
        });
        let violations = json!([{ "rule": "overlap", "times": 1 }]);
        let report =
            json!({ "seed": seed, "counts": counts, "violations": violations, "overlaps_allowed": 3 });
        fs::write(folder.join("report.json"), report.to_string()).unwrap();
        fs::write(folder.join("client-0.0.log"), history).unwrap();
    }

    #[test]
    fn runs_of_a_deployment_add_up_and_none_counts_twice() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("runs.jsonl");
        let about = About { deployment: "redis", clients: 8, ttl_ms: 2_000 };
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        report(&one, 1, "asked\n");
        report(&other, 7, "granted\n");
        add(&record, &about, &one).unwrap();
        add(&record, &about, &other).unwrap();
        let again = add(&record, &about, &one).unwrap_err();
        assert!(again.contains("already"), "{again}");
        let Record { deployments, days } = sums(&record).unwrap();
        let expected = Sums {
            servers: deployments["redis"].servers.clone(),
            runs: 2,
            seconds: 4,
            requests: 200,
            grants: 120,
            faults: 4,
            violations: 2,
            overlaps_allowed: 6,
            stale_writes_refused: 2,
            kinds: BTreeMap::from([("kill".to_owned(), (4, 70)), (SLOW.to_owned(), (10, 1))]),
        };
        assert_eq!(deployments, BTreeMap::from([("redis".to_owned(), expected)]));
        assert_eq!(days.len(), 1);
    }

    #[test]
    fn versions_are_found_in_what_servers_say() {
        let said = [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", "7.0.15"),
            ("etcd Version: 3.4.23\nGit SHA: Not provided", "3.4.23"),
            ("psql (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
            ("mariadb  Ver 15.1 Distrib 10.11.14-MariaDB, for debian-linux-gnu", "10.11.14"),
            ("3.8.0-11+deb12u2", "3.8.0"),
            ("6.18.44-fc-v445", "6.18.44"),
        ];
        for (said, version) in said {
            assert_eq!(number(said).as_deref(), Some(version), "{said}");
        }
        assert_eq!(number("unknown"), None);
    }

    #[test]
    fn a_run_without_histories_is_not_added() {
        let folder = tempfile::tempdir().unwrap();
        let (record, run) = (folder.path().join("runs.jsonl"), folder.path().join("run"));
        report(&run, 1, "");
        fs::remove_file(run.join("client-0.0.log")).unwrap();
        let about = About { deployment: "redis", clients: 8, ttl_ms: 2_000 };
        assert!(add(&record, &about, &run).unwrap_err().contains("no histories"));
        assert!(!record.exists());
    }
}
