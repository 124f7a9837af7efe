//! This start of the machine: by what it is known, and which claims of another one still count.
//!
//! Containers of one machine may see different boot ids (systemd-nspawn and LXC mount another one), so a
//! different id alone does not prove a restart. A session that answers on its socket proves that the machine
//! was not restarted: the kernel that made the socket is the one that answers.

use std::{collections::HashMap, fs, io, path::Path};

use rustix::io::Errno;

use super::{
    codec::{hash, records, write_record},
    errors::failed,
    order::ends_with_its_client,
};
use crate::{
    backend::{ClientId, Failure},
    clock::Moment,
    model::line::{Line, Part},
};

/// Where the kernel says what a process may know of it.
pub(super) const PROC: &str = "/proc";

/// The number of this start of the machine.
///
/// # Errors
/// [`Denied`](crate::backend::FailureKind::Denied) when it cannot be read, or when the boot-time clock of this
/// process is shifted: leases in the files could not be compared.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn read(proc: &Path) -> Result<u64, Failure> {
    let boot = read_id(&proc.join("sys/kernel/random/boot_id"))?;
    check_clock(&proc.join("self"))?;
    Ok(boot)
}

/// Elsewhere there is no such number: sockets of an earlier start are dead, and that is enough.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn read(_: &Path) -> Result<u64, Failure> {
    Ok(0)
}

#[cfg_attr(not(any(target_os = "linux", target_os = "android")), expect(dead_code, reason = "Linux only"))]
fn read_id(path: &Path) -> Result<u64, Failure> {
    let refused = |why: &str| {
        Failure::denied(format!(
            "cannot tell whether the machine was restarted, because {} {why}: mount /proc with all files (without subset=pid; systemd: ProcSubset=all) and do not mask this one",
            path.display()
        ))
    };
    let id = fs::read(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => failed("open", path, &error),
        _ => refused(&format!("cannot be read ({error})")),
    })?;
    // A masked file is empty: the same "id" after every restart would keep claims alive for ever.
    let text = id.trim_ascii();
    let is_id = text.len() == 36 && text.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    if !is_id {
        return Err(refused("has no boot id in it"));
    }
    // All bytes, as in every version: programs of an earlier one compare it.
    Ok(hash(0, &id))
}

/// Leases are written as moments of the boot-time clock, which a time namespace can shift. They are not
/// converted: programs of an earlier version in the same namespace do not convert either, and would take
/// living claims for lapsed ones.
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), expect(dead_code, reason = "Linux only"))]
fn check_clock(process: &Path) -> Result<(), Failure> {
    let unknown = |path: &Path, error: &io::Error| {
        Failure::denied(format!(
            "cannot tell whether a time namespace shifts the clock of this process ({}: {error}): mount /proc so that it can be read",
            path.display()
        ))
    };
    let link = |name| {
        let path = process.join("ns").join(name);
        fs::read_link(&path).map_err(|error| (path, error))
    };
    let (own, of_children) = match (link("time"), link("time_for_children")) {
        (Ok(own), Ok(of_children)) => (own, of_children),
        // The namespaces are listed, and time is not among them: this kernel cannot shift clocks.
        (Err((_, error)), _)
            if error.kind() == io::ErrorKind::NotFound && process.join("ns/mnt").is_symlink() =>
        {
            return Ok(());
        }
        (Err((path, error)), _) | (_, Err((path, error))) => return Err(unknown(&path, &error)),
    };
    // The kernel tells the offsets of the children's namespace only.
    if own != of_children {
        return Err(Failure::denied(
            "this process made a time namespace for its children, so the kernel does not tell whether its own clock is shifted: connect in a child, or before unshare(CLONE_NEWTIME)",
        ));
    }
    let path = process.join("timens_offsets");
    let text = fs::read_to_string(&path).map_err(|error| unknown(&path, &error))?;
    let offset = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        // Earlier kernels write the clock's number.
        matches!(words.next(), Some("boottime" | "7")).then(|| (words.next(), words.next()))
    });
    match offset {
        Some((Some("0"), Some("0"))) => Ok(()),
        Some((Some(seconds), Some(_))) => Err(Failure::denied(format!(
            "this process is in a time namespace that shifts its clock by {seconds} s, so its leases cannot be compared with those of others: start it without one (unshare --time, timeOffsets of a container), or use another store"
        ))),
        _ => Err(unknown(&path, &io::Error::other("it does not tell the offset of the boot-time clock"))),
    }
}

/// What is left of a payload that was written under another boot id. Claims that do not count any more are
/// marked as lapsed, so that the line moves on as it does after any other lapse.
pub(super) fn survivors(payload: &[u8], now: Moment, alive: impl Fn(ClientId) -> bool) -> Vec<u8> {
    let mut known = HashMap::new();
    let mut counts = |part: &Part| {
        let client = part.claim.id.client();
        *known.entry(client).or_insert_with(|| alive(client))
            || !ends_with_its_client(part) && !is_ahead_of(part, now)
    };
    let mut out = Vec::new();
    for record in records(payload) {
        let line = record.read_name().and_then(|name| Some((record.read_line(&name)?, name)));
        let Some((line, name)) = line else {
            // Not dropped: a client that asks for this name is told that it cannot be read.
            out.extend_from_slice(record.whole);
            continue;
        };
        let parts: Vec<_> = line
            .parts()
            .map(|part| if counts(&part) { part } else { Part { lapses: Moment::default(), ..part } })
            .collect();
        if parts.iter().any(|part| part.lapses > Moment::default()) {
            write_record(&mut out, &name, &Line::from_parts(line.last_epoch(), parts));
        }
    }
    out
}

/// Whether a claim was last renewed at a moment that is still to come. The clock never goes back while the
/// machine runs, so it was restarted since. If not, it may have been restarted all the same, and a hold that
/// nobody answers for lasts until its lease ends.
pub(super) fn is_ahead_of(part: &Part, now: Moment) -> bool {
    part.lapses - part.claim.ttl > now
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc, time::Duration};

    use super::*;
    use crate::{
        backend::{Ask, Claim, ClaimId, Share},
        model::line::StoreTime,
        model::name::Name,
    };

    const ID: &str = "0f9ec9f4-53a7-4a51-b8e5-8b0f7a1f6b0e\n";
    const STILL: &str = "monotonic           0         0\nboottime            0         0\n";

    /// A folder like `/proc`.
    struct Proc(PathBuf);

    impl Proc {
        fn new(id: &str, offsets: &str, namespaces: &[(&str, &str)]) -> Self {
            let path = std::env::temp_dir().join(format!("tl-proc-{:?}", ClientId::random()));
            fs::create_dir_all(path.join("sys/kernel/random")).unwrap();
            fs::create_dir_all(path.join("self/ns")).unwrap();
            fs::write(path.join("sys/kernel/random/boot_id"), id).unwrap();
            fs::write(path.join("self/timens_offsets"), offsets).unwrap();
            for (name, target) in [&[("mnt", "mnt:[1]")], namespaces].concat() {
                std::os::unix::fs::symlink(target, path.join("self/ns").join(name)).unwrap();
            }
            Self(path)
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TIME: [(&str, &str); 2] = [("time", "time:[2]"), ("time_for_children", "time:[2]")];

    #[cfg(target_os = "linux")]
    fn refusal(proc: &Proc) -> String {
        read(&proc.0).unwrap_err().to_string()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_boot_id_that_cannot_be_read_is_an_error_and_never_a_number() {
        assert_eq!(read(&Proc::new(ID, STILL, &TIME).0).unwrap(), hash(0, ID.as_bytes()));
        for masked in ["", "\n", "0", "none of your business at all, thanks"] {
            let text = refusal(&Proc::new(masked, STILL, &TIME));
            assert!(text.contains("has no boot id") && text.contains("do not mask"), "{text}");
        }
        let gone = Proc::new(ID, STILL, &TIME);
        fs::remove_file(gone.0.join("sys/kernel/random/boot_id")).unwrap();
        let text = refusal(&gone);
        assert!(text.contains("cannot be read") && text.contains("ProcSubset=all"), "{text}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_time_namespace_that_shifts_the_clock_is_refused() {
        for offsets in ["boottime 86400 0\n", "7 -5 0\n", "monotonic 0 0\nboottime 0 1\n"] {
            let text = refusal(&Proc::new(ID, offsets, &TIME));
            assert!(text.contains("time namespace that shifts"), "{text}");
        }
        let shifts_others = "monotonic 86400 0\nboottime 0 0\n";
        assert!(read(&Proc::new(ID, shifts_others, &TIME).0).is_ok());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_clock_that_cannot_be_judged_is_refused() {
        let text = refusal(&Proc::new(ID, "monotonic 0 0\n", &TIME));
        assert!(text.contains("does not tell the offset"), "{text}");
        let text = refusal(&Proc::new(ID, STILL, &[TIME[0], ("time_for_children", "time:[3]")]));
        assert!(text.contains("for its children"), "{text}");
        let hidden = Proc::new(ID, STILL, &[]);
        assert!(read(&hidden.0).is_ok(), "a kernel without time namespaces");
        fs::remove_file(hidden.0.join("self/ns/mnt")).unwrap();
        let text = refusal(&hidden);
        assert!(text.contains("cannot tell whether a time namespace"), "{text}");
    }

    const TTL: Duration = Duration::from_secs(30);

    /// A line of two claims that were made at a moment of another boot.
    fn payload(detached: bool, at: Moment) -> Vec<u8> {
        let (mut line, name) = (Line::default(), Name::new("job").unwrap());
        for client in [1, 2] {
            let claim = Claim {
                id: ClaimId::new(ClientId::from_u64(client), 0),
                name: name.clone(),
                share: Share::Exclusive,
                owner: None,
                ttl: TTL,
                label: "".into(),
                detached,
                writes: false,
                auto_renew: true,
            };
            line.enter(&Arc::new(claim), Ask::Queue, StoreTime { lease: at, micros: 7 }, &mut Vec::new());
        }
        let mut out = Vec::new();
        write_record(&mut out, &name, &line);
        out
    }

    /// The clients whose claims still count.
    fn left(payload: &[u8], now: Moment, alive: &[u64]) -> Vec<u64> {
        let alive: Vec<_> = alive.iter().copied().map(ClientId::from_u64).collect();
        let left = survivors(payload, now, |client| alive.contains(&client));
        let name = Name::new("job").unwrap();
        let parts =
            records(&left).flat_map(|record| record.read_line(&name).unwrap().parts().collect::<Vec<_>>());
        let counts = parts.filter(|part| part.lapses > now);
        counts.map(|part| (part.claim.id.get() >> 64) as u64).collect()
    }

    #[test]
    fn claims_of_another_boot_are_void_only_if_their_sessions_are_dead() {
        let at = Moment::from_nanos(1 << 40);
        let payload = payload(false, at);
        for alive in [&[][..], &[1], &[2], &[1, 2]] {
            assert_eq!(left(&payload, at, alive), alive);
        }
    }

    #[test]
    fn a_hold_left_behind_ends_with_the_boot_only_where_the_clock_proves_a_restart() {
        let at = Moment::from_nanos(1 << 40);
        let payload = payload(true, at);
        // The second only waits: it ends with its client.
        assert_eq!(left(&payload, at, &[]), [1]);
        assert_eq!(left(&payload, at + TTL / 2, &[]), [1]);
        assert_eq!(left(&payload, at + TTL, &[]), [0_u64; 0]);
        assert_eq!(left(&payload, at - Duration::from_nanos(1), &[]), [0_u64; 0], "the clock went back");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_kept_and_not_taken_for_void() {
        let whole = payload(false, Moment::from_nanos(5));
        let mut spoilt = whole.clone();
        // The share of the first claim: there is no such one.
        let at = 4 + 2 + 3 + 8 + 4 + 16;
        spoilt[at] = 77;
        assert_eq!(survivors(&spoilt, Moment::from_nanos(6), |_| false), spoilt);
    }
}
