//! Whether a member is fit for locks: asked of each one when it is connected.

use super::proto::StatusResponse;
use crate::backends::shared::units::natural;

/// What a member says about itself, as far as locks depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fitness {
    /// Its user may not ask.
    Silent,
    Known {
        /// Its id.
        member: u64,
        version: String,
        has_leader: bool,
        is_learner: bool,
        /// Its own complaints, such as alarms.
        errors: Vec<String>,
        space: Space,
        /// It has no users, and the URL has a login.
        unused_login: bool,
    },
}

type Version = (u32, u32, u32);

/// The size that a database may have unless the server is told another.
const DEFAULT_QUOTA: u64 = 2 << 30;
/// From this share of its quota on, a database is about to be full.
const NEARLY_FULL: (u64, u64) = (1, 2);

/// How large the database is, in bytes. A server whose database is full grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    size: u64,
    in_use: u64,
    /// If the server tells.
    quota: Option<u64>,
}

impl Space {
    fn concern(self) -> Option<String> {
        let quota = self.quota.unwrap_or(DEFAULT_QUOTA);
        let (part, whole) = NEARLY_FULL;
        if self.size / part < quota / whole {
            return None;
        }
        let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
        let limit = if self.quota.is_some() { "its quota" } else { "the default quota" };
        let (size, in_use, quota) = (megabytes(self.size), megabytes(self.in_use), megabytes(quota));
        // What was freed is given back only by a defragmentation; what was not is history.
        let remedy = if self.in_use < self.size / 2 {
            "defragment it (`etcdctl defrag`)"
        } else {
            "set --auto-compaction-retention, compact it and defragment it (`etcdctl compact`, `etcdctl defrag`)"
        };
        Some(format!(
            "the database has {size} MiB, {in_use} MiB of them in use, and {limit} is {quota} MiB: when it is full, no lock is granted; {remedy}"
        ))
    }
}

/// What to do about a complaint of the server.
fn fix(error: &str) -> &'static str {
    if error.contains("NOSPACE") {
        "its database is full, so no lock is granted: compact and defragment it, then run `etcdctl alarm disarm`"
    } else {
        "fix that first"
    }
}

/// Bugs of etcd that matter to locks, the first versions without each, and what each means here.
///
/// No version is trusted where it need not be: a keep-alive alone never proves that a lock is held, because a
/// small race between a renewal and the end of its lease is reported of fixed versions as well.
const BUGS: &[(&[Version], &str)] = &[
    (
        &[(3, 4, 31), (3, 5, 13)],
        "a leader that was replaced may revoke leases that are alive, so a lock can end early and have two holders until the first one hears of it, and a watch may miss events after a compaction, so a lock can be handed over late",
    ),
    (
        &[(3, 4, 38), (3, 5, 23), (3, 6, 5)],
        "a lease that expired may still be renewed; tidelock reads the keys after each renewal, so no lock is taken for held because of it",
    ),
    (
        &[(3, 4, 42), (3, 5, 28), (3, 6, 9)],
        "a linearizable read may be stale around a change of leader; renewals rely on such reads, so a lock that was lost may be taken for held until the next renewal",
    ),
];

/// The first versions that tell the progress of a stream of watches behind all events up to there
/// (etcd-io/etcd#15220, #17507), and lose no deletion that is compacted (#17529, #18089).
const IN_ORDER: &[Version] = &[(3, 4, 34), (3, 5, 16)];

impl Fitness {
    pub(super) fn read(status: StatusResponse, unused_login: bool) -> Self {
        Self::Known {
            member: status.header.map_or(0, |header| header.member_id),
            version: status.version,
            has_leader: status.leader != 0,
            is_learner: status.is_learner,
            errors: status.errors,
            space: Space {
                size: natural(status.db_size),
                in_use: natural(status.db_size_in_use),
                quota: Some(natural(status.db_size_quota)).filter(|quota| *quota > 0),
            },
            unused_login,
        }
    }

    /// Whether it can grant locks now, or why not.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self::Known { is_learner: true, .. } => Some("it is a learner, which cannot grant locks"),
            Self::Known { has_leader: false, .. } => {
                Some("it has no leader: it is cut off, or its cluster is")
            }
            _ => None,
        }
    }

    /// The id of a member that tells the progress of a stream of watches behind all events up to there.
    pub(super) fn tells_progress(&self) -> Option<u64> {
        let Self::Known { member, version, .. } = self else { return None };
        let numbers = numbers(version);
        (numbers.is_some() && !is_before(numbers, IN_ORDER)).then_some(*member)
    }

    /// Problems that do not forbid its use.
    pub(super) fn concerns(&self) -> Vec<String> {
        let Self::Known { version, errors, space, unused_login, .. } = self else {
            return vec![
                "the user may not ask for the status, so the server's version and alarms are not known"
                    .to_owned(),
            ];
        };
        let mut concerns: Vec<_> =
            errors.iter().map(|error| format!("the server says: {error}; {}", fix(error))).collect();
        concerns.extend(space.concern());
        let numbers = numbers(version);
        concerns.extend(BUGS.iter().filter(|(fixed, _)| is_before(numbers, fixed)).map(|(fixed, bug)| {
            let fixed: Vec<_> = fixed.iter().map(|(a, b, c)| format!("{a}.{b}.{c}")).collect();
            format!("etcd {version} has a bug: {bug}; upgrade to {} or newer", fixed.join(", "))
        }));
        if numbers.is_none() {
            concerns.push(format!(
                "the server says that it is etcd {version:?}, which is no version: bugs of etcd that matter to locks cannot be told"
            ));
        }
        if *unused_login {
            concerns.push(
                "the URL has user and password, and the server lets everybody in: enable authentication there, or leave them out".to_owned(),
            );
        }
        concerns
    }

    /// The version of a server that has none of the bugs.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self::Known { version, .. } = self else { return Vec::new() };
        let numbers = numbers(version);
        let is_fixed = numbers.is_some() && !BUGS.iter().any(|(fixed, _)| is_before(numbers, fixed));
        let note = format!("etcd {version} has none of the bugs that are known to matter to locks");
        if is_fixed { vec![note] } else { Vec::new() }
    }
}

fn numbers(version: &str) -> Option<Version> {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

/// Whether a version is older than the one of its series in which a bug was fixed.
fn is_before(version: Option<Version>, fixed: &[Version]) -> bool {
    let Some((major, minor, patch)) = version else { return false };
    match fixed.iter().find(|fix| (fix.0, fix.1) == (major, minor)) {
        Some(fix) => patch < fix.2,
        None => fixed.first().is_some_and(|first| (major, minor) < (first.0, first.1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::etcd::proto::ResponseHeader;

    fn status(version: &str) -> StatusResponse {
        StatusResponse { version: version.to_owned(), leader: 7, ..StatusResponse::default() }
    }

    #[test]
    fn versions_with_bugs_and_servers_with_alarms_are_concerns() {
        // Each bug by a word of it, and the versions around its fixes.
        let (revokes, renews, stale) = ("revoke leases", "renewed", "stale");
        for (version, bugs) in [
            ("3.3.10", &[revokes, renews, stale][..]),
            ("3.4.23", &[revokes, renews, stale]),
            ("3.4.30", &[revokes, renews, stale]),
            ("3.4.31", &[renews, stale]),
            ("3.4.37", &[renews, stale]),
            ("3.4.38", &[stale]),
            ("3.4.41", &[stale]),
            ("3.4.42", &[]),
            ("3.5.0", &[revokes, renews, stale]),
            ("3.5.12", &[revokes, renews, stale]),
            ("3.5.13", &[renews, stale]),
            ("3.5.22", &[renews, stale]),
            ("3.5.23", &[stale]),
            ("3.5.27", &[stale]),
            ("3.5.28", &[]),
            ("3.6.0", &[renews, stale]),
            ("3.6.4", &[renews, stale]),
            ("3.6.5", &[stale]),
            ("3.6.8", &[stale]),
            ("3.6.9", &[]),
            ("3.6.9-rc.1", &[]),
            ("3.7.0", &[]),
            ("4.0.0", &[]),
        ] {
            let concerns = Fitness::read(status(version), false).concerns();
            assert_eq!(concerns.len(), bugs.len(), "{version}: {concerns:?}");
            for (concern, bug) in concerns.iter().zip(bugs) {
                assert!(concern.contains(bug) && concern.contains(version), "{version}: {concern}");
            }
            // The version is named in any case, and what it means.
            let notes = Fitness::read(status(version), false).notes();
            assert_eq!(notes.len(), usize::from(bugs.is_empty()), "{version}: {notes:?}");
            assert!(notes.iter().all(|note| note.contains(version)), "{notes:?}");
        }
        assert!(Fitness::read(status("odd"), false).concerns()[0].contains("odd"));
        let alarmed = StatusResponse { errors: vec!["alarm:NOSPACE".into()], ..status("3.6.9") };
        let concerns = Fitness::read(alarmed, false).concerns();
        assert!(concerns[0].contains("NOSPACE") && concerns[0].contains("etcdctl alarm disarm"));
        assert!(Fitness::read(status("3.6.9"), true).concerns()[0].contains("password"));
        assert_eq!(Fitness::Silent.concerns().len(), 1);
    }

    #[test]
    fn a_database_that_is_half_full_is_a_concern_with_the_remedy() {
        let said = |db_size: i64, db_size_in_use: i64, db_size_quota: i64| {
            let status = StatusResponse { db_size, db_size_in_use, db_size_quota, ..status("3.6.9") };
            Fitness::read(status, false).concerns()
        };
        let (mega, giga) = (1 << 20, 1 << 30);
        assert!(said(0, 0, 0).is_empty() && said(giga - 1, giga - 1, 0).is_empty());
        assert!(said(giga, giga, 8 * giga).is_empty());
        let history = said(1_100 * mega, 1_000 * mega, 0);
        assert!(history[0].contains("1100 MiB") && history[0].contains("the default quota is 2048 MiB"));
        assert!(history[0].contains("--auto-compaction-retention"), "{history:?}");
        let freed = said(5 * giga, 100 * mega, 8 * giga);
        assert!(freed[0].contains("its quota is 8192 MiB") && freed[0].contains("etcdctl defrag"));
        assert!(!freed[0].contains("compaction"), "{freed:?}");
    }

    #[test]
    fn progress_is_believed_only_from_versions_that_tell_it_in_order() {
        let member = |version: &str| {
            let header = Some(ResponseHeader { member_id: 7, ..ResponseHeader::default() });
            Fitness::read(StatusResponse { header, ..status(version) }, false).tells_progress()
        };
        for version in ["3.3.27", "3.4.23", "3.4.33", "3.5.0", "3.5.15", "odd", ""] {
            assert_eq!(member(version), None, "{version}");
        }
        for version in ["3.4.34", "3.5.16", "3.5.28", "3.6.0", "3.7.1", "4.0.0"] {
            assert_eq!(member(version), Some(7), "{version}");
        }
        assert_eq!(Fitness::Silent.tells_progress(), None);
    }

    #[test]
    fn members_that_cannot_grant_say_why() {
        assert_eq!(Fitness::read(status("3.6.4"), false).obstacle(), None);
        let learner = StatusResponse { is_learner: true, ..status("3.6.4") };
        assert!(Fitness::read(learner, false).obstacle().is_some_and(|why| why.contains("learner")));
        let alone = StatusResponse { leader: 0, ..status("3.6.4") };
        assert!(Fitness::read(alone, false).obstacle().is_some_and(|why| why.contains("leader")));
    }
}
