//! Whether a member is fit for locks: asked of each one when it is connected.

use super::proto::StatusResponse;

/// What a member says about itself, as far as locks depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fitness {
    /// Its user may not ask.
    Silent,
    Known {
        version: String,
        has_leader: bool,
        is_learner: bool,
        /// Its own complaints, such as alarms.
        errors: Vec<String>,
        /// It has no users, and the URL has a login.
        unused_login: bool,
    },
}

type Version = (u32, u32, u32);

/// Bugs of etcd that locks are hit by, and the first versions without each.
const BUGS: &[(&[Version], &str)] = &[
    (
        &[(3, 4, 31), (3, 5, 13)],
        "a leader that was replaced may revoke leases that are alive, and a watch may miss events after a compaction",
    ),
    (
        &[(3, 4, 38), (3, 5, 22), (3, 6, 2)],
        "a keep-alive may be confirmed for a lease that was just revoked; what is held is read again because of it",
    ),
];

impl Fitness {
    pub(super) fn read(status: StatusResponse, unused_login: bool) -> Self {
        Self::Known {
            version: status.version,
            has_leader: status.leader != 0,
            is_learner: status.is_learner,
            errors: status.errors,
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

    /// What does not forbid its use and should be mended.
    pub(super) fn concerns(&self) -> Vec<String> {
        let Self::Known { version, errors, unused_login, .. } = self else {
            return vec![
                "the user may not ask for the status, so the server's version and alarms are not known"
                    .to_owned(),
            ];
        };
        let mut concerns: Vec<_> =
            errors.iter().map(|error| format!("the server says: {error}; mend that first")).collect();
        let numbers = numbers(version);
        concerns.extend(BUGS.iter().filter(|(fixed, _)| is_before(numbers, fixed)).map(|(fixed, bug)| {
            let fixed: Vec<_> = fixed.iter().map(|(a, b, c)| format!("{a}.{b}.{c}")).collect();
            format!("etcd {version} has a bug: {bug}; use {} or newer", fixed.join(", "))
        }));
        if *unused_login {
            concerns.push(
                "the URL has user and password, and the server lets everybody in: enable authentication there, or leave them out".to_owned(),
            );
        }
        concerns
    }
}

fn numbers(version: &str) -> Option<Version> {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

/// Whether a version is older than the one of its series in which something was mended.
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

    fn status(version: &str) -> StatusResponse {
        StatusResponse { version: version.to_owned(), leader: 7, ..StatusResponse::default() }
    }

    #[test]
    fn versions_with_bugs_and_servers_with_alarms_are_concerns() {
        for (version, bugs) in [
            ("3.4.23", 2),
            ("3.4.31", 1),
            ("3.3.10", 2),
            ("3.4.38", 0),
            ("3.5.12", 2),
            ("3.6.4", 0),
            ("odd", 0),
        ] {
            assert_eq!(Fitness::read(status(version), false).concerns().len(), bugs, "{version}");
        }
        let alarmed = StatusResponse { errors: vec!["alarm:NOSPACE".into()], ..status("3.6.4") };
        assert!(Fitness::read(alarmed, false).concerns()[0].contains("NOSPACE"));
        assert!(Fitness::read(status("3.6.4"), true).concerns()[0].contains("password"));
        assert_eq!(Fitness::Silent.concerns().len(), 1);
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
