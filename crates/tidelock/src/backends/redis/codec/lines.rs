//! The record of a lock: bytes at its key and lines, by the fields of `layout.rs`.

use std::{sync::Arc, time::Duration};

use super::{
    super::{
        forms::{Reader, explain},
        layout::{self, CLAIM, IDLE, LINE, TRANSACTIONS, form, hold, mark, share},
    },
    Tail, claim_id, micros,
};
use crate::{
    backend::{Claim, ClaimId, ClaimView, LockView, Share},
    clock::Moment,
    model::line::{Line, Part, PartHold, StoreTime},
    model::name::Name,
    model::owner::Owner,
};

/// The claim that a line which cannot be read is shown to have. Evicting it clears the line.
pub(in crate::backends::redis) fn nobody() -> ClaimId {
    ClaimId::from_u128(0)
}

/// What people see of what is kept at the key of a lock; nothing if it is idle. A line that cannot be read is shown
/// as held by [`nobody`]: nobody gets this lock, and evicting that claim clears it.
pub(in crate::backends::redis) fn view(name: &Name, head: &[u8], at: StoreTime) -> Option<LockView> {
    match line_at(name, head) {
        Some(line) => look(name, &line, at),
        None => {
            let claim = Claim {
                id: nobody(),
                name: name.clone(),
                share: Share::Exclusive,
                owner: None,
                ttl: Duration::ZERO,
                label: format!("unreadable: {}", explain(head, Reader::Look)).into(),
                detached: false,
                writes: false,
                auto_renew: false,
            };
            let mut view = LockView::new(name.clone(), None, 0);
            view.holders.push(ClaimView::new(&claim, None, Duration::ZERO, Duration::ZERO));
            Some(view)
        }
    }
}

/// The line at a key, in any form that this version knows; nothing if it cannot be read.
pub(in crate::backends::redis) fn line_at(name: &Name, head: &[u8]) -> Option<Line> {
    let head = std::str::from_utf8(head).ok()?;
    if head.starts_with(form::SINGLE) {
        let only = part(name, head)?;
        let epoch = only.hold?.epoch;
        return Some(Line::from_parts(epoch, [only]));
    }
    if head.starts_with(form::QUEUE) {
        let parts = parts(name, layout::QUEUE.claims.of(head)?)?;
        return Some(Line::from_parts(parts.first()?.hold?.epoch, parts));
    }
    if head.starts_with(form::LINE) {
        // It is counted from 1, as scripts count.
        let begin = LINE.holders_at.number::<usize>(head)?.checked_sub(1)?;
        let (epoch, parts) = (LINE.epoch.number(head)?, parts(name, head.get(begin..)?)?);
        let held = parts.iter().take_while(|part| part.hold.is_some()).count();
        let is_whole = LINE.length.number(head) == Some(head.len())
            && (LINE.held.number(head)?, LINE.waiting.number(head)?) == (held, parts.len() - held);
        return is_whole.then(|| Line::from_parts(epoch, parts));
    }
    read_line(name, head)
}

/// The claims of a section, each with the separator that it begins with.
fn claims(section: &str) -> impl Iterator<Item = &str> {
    let begins = section.match_indices(mark::SEPARATOR).map(|(begin, _)| begin);
    begins.map(|begin| {
        let claim = &section[begin..];
        let end = claim[1..].find(mark::SEPARATOR).map_or(claim.len(), |end| end + 1);
        &claim[..end]
    })
}

/// What the claims of a section say; nothing if one cannot be read.
fn parts(name: &Name, section: &str) -> Option<Vec<Part>> {
    claims(section).map(|claim| part(name, claim)).collect()
}

/// What people see of a line; nothing if it is idle.
fn look(name: &Name, line: &Line, at: StoreTime) -> Option<LockView> {
    // What sharing claims agreed on ends with the last of them that lives.
    let alive = line.parts().filter(|part| part.lapses > at.lease);
    let view = Line::from_parts(line.last_epoch(), alive).look(name, at);
    (!view.holders.is_empty() || !view.waiters.is_empty()).then_some(view)
}

/// The server's time as lines have it: leases run on it, too.
pub(in crate::backends::redis) fn store_time(micros: u64) -> StoreTime {
    StoreTime { lease: moment(micros), micros }
}

fn moment(micros: u64) -> Moment {
    Moment::from_nanos(micros.saturating_mul(1_000))
}

fn micros_of(moment: Moment) -> u64 {
    moment.as_nanos() / 1_000
}

/// What a claim says, as scripts and transactions keep it.
fn part(name: &Name, text: &str) -> Option<Part> {
    let (renewed, ttl): (u64, u64) = (CLAIM.renewed.number(text)?, CLAIM.ttl.number(text)?);
    let (since, lapses) = (CLAIM.since.number(text)?, renewed.checked_add(ttl)?);
    let (hold, epoch) = (CLAIM.hold.of(text)?, CLAIM.epoch.number(text)?);
    let held_since = CLAIM.held_since.number(text)?;
    let detached = CLAIM.detached.of(text)? == "1";
    let mut lines = CLAIM.text.of(text)?.splitn(3, '\n');
    let (n, of) = lines.next()?.split_once(',')?;
    let (owner, label) = (lines.next()?, lines.next()?);
    let share = match CLAIM.share.of(text)? {
        share::EXCLUSIVE => Share::Exclusive,
        share::SHARED => Share::Shared,
        share::PERMITS => Share::Permits { n: n.parse().ok()?, of: of.parse().ok()? },
        _ => return None,
    };
    let owner = if owner.is_empty() { None } else { Some(Owner::new(owner).ok()?) };
    let (id, ttl) = (claim_id(CLAIM.id.of(text)?)?, Duration::from_micros(ttl));
    let claim = Claim {
        id,
        name: name.clone(),
        share,
        owner,
        ttl,
        label: label.into(),
        detached,
        auto_renew: true,
        writes: false,
    };
    let holds = |rides| Some(PartHold { epoch, since: moment(held_since), rides });
    let hold = match hold {
        hold::WAITS => None,
        hold::HOLDS => holds(false),
        hold::RIDES => holds(true),
        _ => return None,
    };
    Some(Part { claim: Arc::new(claim), since: moment(since), lapses: moment(lapses), hold })
}

/// A number as the field says.
pub(super) fn digits(field: layout::Field, number: u64) -> String {
    format!("{number:0width$}", width = field.width)
}

/// A claim as [`part`] reads it.
fn claim_text(part: &Part) -> String {
    let (hold, epoch, held_since) = match part.hold {
        None => (hold::WAITS, 0, 0),
        Some(hold) => (if hold.rides { hold::RIDES } else { hold::HOLDS }, hold.epoch, micros_of(hold.since)),
    };
    let ttl = micros(part.claim.ttl);
    let renewed = micros_of(part.lapses).saturating_sub(ttl);
    [
        mark::SEPARATOR,
        &part.claim.id.to_string(),
        &digits(CLAIM.renewed, renewed),
        &digits(CLAIM.ttl, ttl),
        &digits(CLAIM.since, micros_of(part.since)),
        hold,
        &digits(CLAIM.epoch, epoch),
        &digits(CLAIM.held_since, held_since),
        &Tail(&part.claim).to_string(),
    ]
    .concat()
}

/// A line as transactions keep it. One that is empty is idle, which scripts know as well: an idle lock may be used by either.
pub(in crate::backends::redis) fn write_line(line: &Line) -> String {
    if line.is_empty() {
        return [form::IDLE, &digits(IDLE.epoch, line.last_epoch())].concat();
    }
    let mut text = [form::TRANSACTIONS, &digits(TRANSACTIONS.epoch, line.last_epoch())].concat();
    line.parts().for_each(|part| text.push_str(&claim_text(&part)));
    text
}

/// The line that transactions or scripts left at a key; nothing if it is in use by scripts, or not a line.
pub(in crate::backends::redis) fn read_line(name: &Name, text: &str) -> Option<Line> {
    if is_idle(text.as_bytes()) {
        return Some(Line::from_parts(IDLE.epoch.number(text)?, []));
    }
    let section = text.starts_with(form::TRANSACTIONS).then(|| TRANSACTIONS.claims.of(text))??;
    let parts = section.starts_with(mark::SEPARATOR).then(|| parts(name, section))??;
    Some(Line::from_parts(TRANSACTIONS.epoch.number(text)?, parts))
}

/// Whether this is the record of a lock that nobody is in line for.
pub(in crate::backends::redis) fn is_idle(head: &[u8]) -> bool {
    head.len() == IDLE.epoch.offset + IDLE.epoch.width && head.starts_with(form::IDLE.as_bytes())
}

/// A record of the releases that have the form V01.
#[cfg(test)]
pub(super) fn golden(name: &str) -> String {
    let records = include_str!("records_v01.txt");
    let mut records = records.lines().filter_map(|line| line.split_once(' '));
    let (_, text) = records.find(|(known, _)| *known == name).unwrap();
    text.replace("\\n", "\n").replace("\\x1e", mark::SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Ask, ClientId};

    const AT: u64 = 7_000_000_000_000_005;

    #[test]
    fn the_records_of_earlier_releases_are_read() {
        let name = Name::new("a").unwrap();
        // The record, and of each claim its number, whether it holds, whether it rides, and its share.
        let (exclusive, permits) = (Share::Exclusive, |n| Share::Permits { n, of: 3 });
        type Claims<'a> = &'a [(u64, bool, bool, Share)];
        let table: &[(&str, Claims<'_>)] = &[
            ("idle", &[]),
            ("single", &[(1, true, false, exclusive)]),
            ("queue", &[(1, true, false, exclusive), (2, false, false, exclusive)]),
            ("transactions", &[(1, true, false, exclusive), (2, false, false, exclusive)]),
            (
                "line",
                &[(1, true, false, permits(2)), (2, true, true, permits(1)), (3, false, false, exclusive)],
            ),
            ("gap", &[(1, true, false, permits(2)), (3, false, false, exclusive)]),
        ];
        for (record, claims) in table {
            let line = line_at(&name, golden(record).as_bytes()).unwrap_or_else(|| panic!("{record}"));
            assert_eq!((line.last_epoch(), line.len()), (AT, claims.len()), "{record}");
            for (part, (number, holds, rides, share)) in line.parts().zip(*claims) {
                let claim = &part.claim;
                assert_eq!(claim.id, ClaimId::new(ClientId::from_u64(1), *number), "{record}");
                assert_eq!((claim.share, claim.ttl), (*share, Duration::from_secs(30)), "{record}");
                let hold = PartHold { epoch: AT, since: moment(AT), rides: *rides };
                assert_eq!(part.hold, holds.then_some(hold), "{record}");
                assert_eq!((part.since, part.lapses), (moment(AT), moment(AT + 30_000_000)), "{record}");
                assert_eq!(&*claim.label, ["first", "second", "third"][*number as usize - 1], "{record}");
                let owner = matches!(share, Share::Permits { .. }).then_some("ann");
                assert_eq!(claim.owner.as_ref().map(Owner::as_str), owner, "{record}");
                let detached = *record != "line" && *number == 2;
                assert_eq!(claim.detached, detached, "{record}");
            }
        }
    }

    #[test]
    fn transactions_write_the_records_of_earlier_releases() {
        let name = Name::new("a").unwrap();
        for record in ["transactions", "idle"] {
            let text = golden(record);
            assert_eq!(write_line(&read_line(&name, &text).unwrap()), text);
        }
    }

    #[test]
    fn a_record_that_is_cut_or_of_another_version_is_not_read() {
        let name = Name::new("a").unwrap();
        for record in ["single", "queue", "line", "gap", "transactions", "idle"] {
            let text = golden(record);
            // Behind the fields of a claim everything is its label.
            for end in 0..CLAIM.text.offset.min(text.len()) {
                assert!(line_at(&name, &text.as_bytes()[..end]).is_none(), "{record} {end}");
            }
            assert!(
                line_at(&name, text.replacen("V01", "V02", 1).as_bytes()).is_some() != text.starts_with('V')
            );
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let name = Name::new("a").unwrap();
        let (mut line, mut effects) = (Line::default(), Vec::new());
        let shares = [
            Share::Permits { n: 2, of: 3 },
            Share::Permits { n: 1, of: 3 },
            Share::Exclusive,
            Share::Exclusive,
        ];
        for (serial, share) in (1..).zip(shares) {
            let claim = Claim {
                id: ClaimId::new(ClientId::from_u64(1), serial),
                name: name.clone(),
                share,
                owner: (serial < 3).then(|| Owner::new("ann").unwrap()),
                ttl: Duration::from_secs(30),
                label: "one, two 🔒".into(),
                detached: serial == 2,
                writes: false,
                auto_renew: true,
            };
            line.enter(&claim.into(), Ask::Queue, store_time(1_700_000_000_000_000 + serial), &mut effects);
        }
        let again = read_line(&name, &write_line(&line)).unwrap();
        assert_eq!((again.last_epoch(), again.holders()), (line.last_epoch(), 2));
        assert!(again.parts().eq(line.parts()) && line.len() == 4);
        assert!(
            read_line(&name, "I0000000000000017")
                .is_some_and(|idle| idle.last_epoch() == 17 && idle.is_empty())
        );
        for other in ["", "T", "S1", "L1,2", "V01", "hello", "T1\u{1e}x"] {
            assert!(read_line(&name, other).is_none(), "{other}");
        }
    }
}
