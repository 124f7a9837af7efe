//! Who is behind whom in a line, and whose death would move a claim on.

use crate::{
    backend::{ClaimId, ClientId},
    model::line::{Line, Part},
};

/// Whether a claim goes when its client does: one that was left behind holds until its lease ends.
pub(super) fn ends_with_its_client(part: &Part) -> bool {
    !part.claim.detached || part.hold.is_none()
}

pub(super) fn ids(line: &Line) -> Vec<ClaimId> {
    line.parts().map(|part| part.claim.id).collect()
}

/// Whose death would move a claim that waits: for the first, all who hold; for the others, the one
/// before. So each claim in line is watched by one, not by all.
pub(super) fn ahead_of(line: &Line, id: ClaimId) -> Vec<ClientId> {
    let parts: Vec<_> = line.parts().collect();
    let at = parts.iter().position(|part| part.claim.id == id).unwrap_or(0);
    let ahead = watched_from(&parts, line.holders(), at).iter().filter(|part| ends_with_its_client(part));
    let mut clients: Vec<_> = ahead.map(|part| part.claim.id.client()).collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

fn watched_from<T>(line: &[T], held: usize, at: usize) -> &[T] {
    if at <= held { &line[..held.min(line.len())] } else { &line[at - 1..at] }
}

/// Who waits on, and has to watch somebody else than before.
pub(super) fn moved(before: &[ClaimId], held_before: usize, line: &Line) -> Vec<ClaimId> {
    let (after, held) = (ids(line), line.holders());
    let mut old = 0;
    let mut moved = Vec::new();
    for (at, id) in after.iter().enumerate().skip(held) {
        // Those who wait stay in order, so one walk finds them all. A newcomer knows already.
        let Some(step) = before[old..].iter().position(|other| other == id) else { break };
        old += step;
        let knows = watched_from(before, held_before, old);
        let needs = watched_from(&after, held, at);
        if !needs.iter().all(|id| knows.iter().any(|known| known.client() == id.client())) {
            moved.push(*id);
        }
    }
    moved
}
