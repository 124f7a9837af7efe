//! A call for several claims: which of them share it, its command, and what its answer says of each.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::{
    codec::{Tail, Text, strange, text},
    commands::{keep_millis, name_with_room},
    errors::{classify, is_missing},
    layout::CLAIM,
    link::{Form, Live, Server},
    scripts::TOGETHER,
    settings::Scripting,
    store::Floor,
};
use crate::{
    backend::{Claim, Failure, FailureKind},
    backends::shared::{steps::Step, units::micros},
};

/// So many claims share a call: about 50 µs, in which the server does nothing else.
pub(super) const MOST: usize = 16;

/// An enter or a leave, and the server that is asked.
pub(super) struct Question {
    pub(super) server: Arc<Server>,
    pub(super) step: Step,
    pub(super) floor: Floor,
}

/// The epoch of an enter; of a leave only that it was there. Nothing if it has to be asked alone.
pub(super) type Told = Result<Option<u64>, Failure>;

/// Questions that share a call, and with each of them what is to be told.
pub(super) struct Batch<T> {
    server: Arc<Server>,
    enters: Vec<(Question, T)>,
    leaves: Vec<(Question, T)>,
}

impl<T> Batch<T> {
    pub(super) fn of(first: Question, tell: T) -> Self {
        let server = Arc::clone(&first.server);
        let mut batch = Self { server, enters: Vec::new(), leaves: Vec::new() };
        batch.add(first, tell);
        batch
    }

    pub(super) fn add(&mut self, question: Question, tell: T) {
        let list = match question.step {
            Step::Enter(_) => &mut self.enters,
            Step::Leave(..) => &mut self.leaves,
        };
        list.push((question, tell));
    }

    pub(super) fn len(&self) -> usize {
        self.enters.len() + self.leaves.len()
    }

    /// Whether a question goes to the same server, and there is room.
    pub(super) fn takes(&self, question: &Question) -> bool {
        self.len() < MOST && Arc::ptr_eq(&self.server, &question.server)
    }

    /// What asks all of them when it is polled, with an answer for each; and whom to tell, in the same order. If the server
    /// cannot be asked now, all have to be asked alone: then it is said why.
    pub(super) fn call(self) -> (impl Future<Output = Vec<Told>> + Send, Vec<T>) {
        // One connection for all of them, taken as late as possible. It may have been lost since they came.
        let live = self.server.at_hand();
        let command = live.is_some().then(|| self.command());
        let Self { server, enters, leaves } = self;
        let counts = (enters.len(), leaves.len());
        let tells = enters.into_iter().chain(leaves).map(|(_, tell)| tell).collect();
        let asked = async move {
            match live.zip(command) {
                Some((live, command)) => ask(server, live, command, counts).await,
                None => vec![Ok(None); counts.0 + counts.1],
            }
        };
        (asked, tells)
    }

    fn command(&self) -> Cmd {
        let space = &self.server.common().space;
        let mut command = name_with_room(&TOGETHER, Form::plain(&self.server), self.len());
        command.arg(self.len());
        for (question, _) in self.enters.iter().chain(&self.leaves) {
            command.arg(space.key(question.step.name()));
        }
        let claims = self.enters.iter().filter_map(|(question, _)| question.step.entering());
        let (kinds, kind_of) = kinds(claims);
        let has_floors = self.enters.iter().any(|(question, _)| question.floor.is_some());
        command.arg(self.enters.len()).arg(kinds.len()).arg(u8::from(has_floors));
        for claim in &kinds {
            command.arg(Text(format_args!("{:016}", micros(claim.ttl))));
            command.arg(keep_millis(claim.ttl)).arg(Text(Tail(claim)));
        }
        for ((question, _), kind) in self.enters.iter().zip(kind_of) {
            command.arg(Text(question.step.id()));
            if kinds.len() > 1 {
                command.arg(kind + 1);
            }
            match question.floor {
                Some(floor) => command.arg(Text(format_args!("{floor:016}"))),
                None if has_floors => command.arg(""),
                None => &mut command,
            };
        }
        for (question, _) in &self.leaves {
            command.arg(Text(question.step.id()));
        }
        command
    }
}

/// One claim of each kind, and the kind of each claim. Those of one kind differ in nothing but id and name, as far as the
/// server keeps it. Nearly always all are of one.
fn kinds<'a>(claims: impl Iterator<Item = &'a Claim>) -> (Vec<&'a Claim>, Vec<usize>) {
    let mut kinds: Vec<&Claim> = Vec::with_capacity(1);
    let mut kind_of = Vec::with_capacity(MOST);
    for claim in claims {
        let kind = kinds.iter().position(|other| is_alike(claim, other)).unwrap_or(kinds.len());
        if kind == kinds.len() {
            kinds.push(claim);
        }
        kind_of.push(kind);
    }
    (kinds, kind_of)
}

fn is_alike(one: &Claim, other: &Claim) -> bool {
    one.ttl == other.ttl
        && one.share == other.share
        && one.detached == other.detached
        && one.owner == other.owner
        && (Arc::ptr_eq(&one.label, &other.label) || one.label == other.label)
}

/// Sends a call for so many enters and leaves. An answer for each, in this order.
async fn ask(server: Arc<Server>, live: Live, command: Cmd, (enters, leaves): (usize, usize)) -> Vec<Told> {
    let (asked, connection) = (server.common().clock.now(), live.clone());
    let all = |told: Told| vec![told; enters + leaves];
    let answer = match server.ask_live(live, &command).await {
        Ok(answer) => answer,
        Err(error) if is_missing(&error) => {
            make_known(&server, connection).await;
            return all(Ok(None));
        }
        Err(error) => {
            let failure = classify(&error);
            // It changed nothing, because of one of them maybe: that one must not take the others along.
            return all(if failure.kind == FailureKind::Denied { Ok(None) } else { Err(failure) });
        }
    };
    let Some((time, mut answers)) = read(&answer, enters, leaves) else {
        // Answers that do not belong to their questions: none on this connection can be relied on.
        server.cut(connection.1, "the answer to a call for several claims cannot be read");
        return all(Err(strange("a call for several claims")));
    };
    // A vote is worth as much as the clock behind it.
    if server.common().wary
        && let Err(failure) = server.note_time(time, asked)
    {
        answers[..enters].fill(Err(failure));
    }
    answers
}

/// Restarted, flushed, or never seen: the text makes the script known again. Those who wait ask alone meanwhile.
async fn make_known(server: &Server, live: Live) {
    if server.common().scripting != Scripting::Functions {
        server.lost_functions();
        let mut nothing = redis::cmd("EVAL");
        nothing.arg(TOGETHER.text()).arg(0).arg(0).arg(0);
        // If it cannot be made known now, the next call tries it again.
        let _ = server.ask_live(live, &nothing).await;
    }
}

/// The server's time, and what the call says of each question.
fn read(answer: &Value, enters: usize, leaves: usize) -> Option<(u64, Vec<Told>)> {
    let text = text(answer).filter(|text| text.is_ascii())?;
    let (time, rest) = text.split_at_checked(CLAIM.renewed.width)?;
    let (epochs, removed) = rest.split_at_checked(enters * CLAIM.epoch.width)?;
    if removed.len() != leaves {
        return None;
    }
    let mut answers = Vec::with_capacity(enters + leaves);
    for epoch in epochs.as_bytes().chunks_exact(CLAIM.epoch.width) {
        let epoch = std::str::from_utf8(epoch).ok()?;
        answers.push(Ok(if epoch.starts_with(' ') { None } else { Some(epoch.parse().ok()?) }));
    }
    answers.extend(removed.bytes().map(|removed| Ok((removed == b'1').then_some(0))));
    Some((time.parse().ok()?, answers))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        backend::{ClaimId, ClientId, Share},
        model::{name::Name, owner::Owner},
    };

    #[test]
    fn an_answer_is_read_only_if_it_has_a_place_for_each_question() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = text("17000000000000071700000000000009                1 ");
        let (time, answers) = read(&answer, 2, 2).unwrap();
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(
            (time, &*answers),
            (1_700_000_000_000_007, &[Some(1_700_000_000_000_009), None, Some(0), None][..])
        );
        for (enters, leaves) in [(2, 1), (2, 3), (1, 2), (3, 2)] {
            assert!(read(&answer, enters, leaves).is_none());
        }
        for other in [text(""), text("1700000000000007x"), Value::Int(1), Value::Nil] {
            assert!(read(&other, 1, 0).is_none(), "{other:?}");
        }
    }

    #[test]
    fn claims_are_of_one_kind_if_the_server_keeps_the_same_of_them() {
        let claim = |serial: u64, change: fn(&mut Claim)| {
            let mut claim = Claim {
                id: ClaimId::new(ClientId::from_u64(1), serial),
                name: Name::new(&format!("lock {serial}")).unwrap(),
                share: Share::Exclusive,
                owner: None,
                ttl: Duration::from_secs(1),
                label: Arc::from("label"),
                detached: false,
                auto_renew: true,
                writes: false,
            };
            change(&mut claim);
            claim
        };
        let claims = [
            claim(1, |_| {}),
            claim(2, |claim| claim.ttl *= 2),
            claim(3, |_| {}),
            claim(4, |claim| claim.share = Share::Shared),
            claim(5, |claim| claim.label = Arc::from("another")),
            claim(6, |claim| claim.detached = true),
            claim(7, |claim| claim.owner = Some(Owner::new("owner").unwrap())),
            claim(8, |claim| claim.ttl *= 2),
        ];
        let (kinds, kind_of) = kinds(claims.iter());
        assert_eq!((kinds.len(), &*kind_of), (6, &[0, 1, 0, 2, 3, 4, 5, 1][..]));
        for (claim, kind) in claims.iter().zip(kind_of) {
            let kept = |claim: &Claim| (claim.ttl, Tail(claim).to_string());
            assert_eq!(kept(claim), kept(kinds[kind]));
        }
    }
}
