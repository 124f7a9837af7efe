//! What a client makes of a line that it read and of the watches that it hears.

use super::*;
use crate::{
    backend::{ClientId, Grant, Place, Share, Standing, What},
    backends::etcd::{
        order::order,
        proto::{Event, EventType, KeyValue, ResponseHeader, WatchResponse},
    },
    model::owner::Owner,
};

/// The base of all epochs here.
const BASE: i64 = 1_000;

struct Client {
    claims: Claims,
}

impl Client {
    fn new() -> Self {
        Self { claims: Claims::new(Arc::new(Space::new("t/"))) }
    }

    /// Asks for a claim and puts it into a line, at a revision. Says how it stands when the line is read at another.
    fn enter(&mut self, claim: &Arc<Claim>, line: &mut Vec<Contender>, created: i64, at: i64) -> Standing {
        let key = self.claims.asking(claim, 1);
        line.push(Contender { key, created, lease: 1, base: BASE, ..Contender::last(claim) });
        let standing = self.stands(claim, line, at);
        self.claims.answered(claim);
        standing
    }

    fn stands(&mut self, claim: &Claim, line: &[Contender], at: i64) -> Standing {
        self.claims.stands(claim, (line, &order(line)), at, Moment::default())
    }

    /// The server has made the watch with this number.
    fn watches(&mut self, watch_id: i64, revision: i64) {
        let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        let made = WatchResponse { header, watch_id, created: true, ..WatchResponse::default() };
        self.claims.heard(made, Moment::default()).unwrap();
    }

    /// The server says that a key was deleted.
    fn hears(&mut self, watch_id: i64, gone: &Contender, at: i64) {
        let kv = KeyValue { key: gone.key.clone(), mod_revision: at, ..KeyValue::default() };
        let event = Event { r#type: EventType::Delete.into(), kv: Some(kv) };
        let said = WatchResponse { watch_id, events: vec![event], ..WatchResponse::default() };
        self.claims.heard(said, Moment::default()).unwrap();
    }
}

fn claim(client: u64, serial: u64, share: Share, owner: Option<&str>) -> Arc<Claim> {
    Arc::new(Claim {
        id: ClaimId::new(ClientId::from_u64(client), serial),
        name: Name::new("a").unwrap(),
        share,
        owner: owner.map(|owner| Owner::new(owner).unwrap()),
        ttl: Duration::from_secs(9),
        label: "x".into(),
        detached: false,
        auto_renew: true,
        writes: false,
    })
}

/// A claim of another client.
fn other(created: i64, share: Share, owner: Option<&str>) -> Contender {
    let claim = claim(7, created.unsigned_abs(), share, owner);
    let key = Space::new("t/").key(&claim, claim.id.serial() as u32);
    Contender { key, created, ..Contender::last(&claim) }
}

fn held(created: i64, waiting: u32) -> Grant {
    Grant::new((BASE + created) as u64, Duration::from_secs(9), waiting)
}

fn waiting(ahead: u32) -> Standing {
    Standing::Waiting(Place { ahead, lapse_in: None })
}

#[test]
fn a_claim_holds_without_another_question_once_all_ahead_are_gone() {
    let mut client = Client::new();
    let mine = claim(1, 1, Share::Exclusive, None);
    let mut line = vec![other(1, Share::Shared, None), other(2, Share::Shared, None)];
    assert_eq!(client.enter(&mine, &mut line, 3, 3), waiting(2));
    client.watches(1, 3);
    client.hears(1, &line[1], 4);
    assert_eq!(client.claims.take_news(), None);
    client.hears(1, &line[0], 5);
    let news = client.claims.take_news().unwrap();
    assert_eq!((news.id, news.what), (mine.id, What::Granted(held(3, 1))));
    assert!(client.claims.take_stale().is_empty());
    // An answer that is older than what was heard takes nothing back.
    assert_eq!(client.stands(&mine, &line, 3), Standing::Held(held(3, 1)));
}

#[test]
fn what_was_heard_before_the_answer_came_counts() {
    let mut client = Client::new();
    let (first, second) = (claim(1, 1, Share::Shared, None), claim(1, 2, Share::Shared, None));
    let mut line = vec![other(1, Share::Exclusive, None)];
    assert_eq!(client.enter(&first, &mut line, 2, 2), waiting(1));
    client.watches(1, 2);
    client.hears(1, &line[0], 4);
    assert!(matches!(client.claims.take_news().unwrap().what, What::Granted(_)));
    // It read the line at revision 3, when the writer was still there.
    assert_eq!(client.enter(&second, &mut line, 3, 3), Standing::Held(held(3, 1)));
}

#[test]
fn a_watch_that_began_after_the_line_was_read_has_it_read_again() {
    let mut client = Client::new();
    let mine = claim(1, 1, Share::Exclusive, None);
    let mut line = vec![other(1, Share::Exclusive, None)];
    client.enter(&mine, &mut line, 2, 2);
    client.watches(1, 5);
    assert_eq!(client.claims.take_stale(), std::slice::from_ref(&mine.name));
}

#[test]
fn where_a_hold_may_go_on_by_another_claim_the_line_is_read_again() {
    let mut client = Client::new();
    let mine = claim(1, 1, Share::Exclusive, None);
    let mut line = vec![other(1, Share::Exclusive, Some("o"))];
    client.enter(&mine, &mut line, 2, 2);
    client.watches(1, 2);
    client.hears(1, &line[0], 3);
    assert_eq!(client.claims.take_news(), None);
    assert_eq!(client.claims.take_stale(), std::slice::from_ref(&mine.name));
}

#[test]
fn a_claim_whose_key_somebody_deleted_is_gone_and_given_back() {
    let mut client = Client::new();
    let mine = claim(1, 1, Share::Exclusive, None);
    let mut line = vec![other(1, Share::Exclusive, None)];
    client.enter(&mine, &mut line, 2, 2);
    client.watches(1, 2);
    let own = line.remove(1);
    client.hears(1, &own, 3);
    assert_eq!(client.claims.take_vanished(), [(mine.name.clone(), mine.id)]);
    assert!(client.claims.take_unleft(Moment::default()).is_empty());
    assert_eq!(client.claims.take_unleft(Moment::default() + UNLEFT), [(mine.name.clone(), mine.id)]);
    line.push(own);
    assert_eq!(client.stands(&mine, &line, 2), Standing::Gone);
}

#[test]
fn a_hold_that_a_copy_put_back_behind_others_is_gone() {
    let mut client = Client::new();
    let (mine, mut line) = (claim(1, 1, Share::Exclusive, None), Vec::new());
    assert_eq!(client.enter(&mine, &mut line, 3, 3), Standing::Held(held(3, 0)));
    // It was put out, which nobody heard here, and another one holds when its question arrives again.
    let back = Contender { created: 6, ..line[0].clone() };
    line = vec![other(5, Share::Exclusive, None), back];
    assert_eq!(client.stands(&mine, &line, 7), Standing::Gone);
    assert_eq!(client.claims.take_vanished(), [(mine.name.clone(), mine.id)]);
    // Nor does it hold once it is the first.
    assert_eq!(client.stands(&mine, &line[1..], 8), Standing::Gone);
    // A release says that it was not there, and the copy is a stray then.
    assert_eq!(client.claims.leaving(&mine.name, mine.id, Moment::default()).unwrap().created, 3);
}

#[test]
fn a_claim_that_is_asked_for_again_stands_where_it_came_the_second_time() {
    let mut client = Client::new();
    let (mine, mut line) = (claim(1, 1, Share::Exclusive, None), Vec::new());
    // Nobody took this answer.
    assert_eq!(client.enter(&mine, &mut line, 3, 3), Standing::Held(held(3, 0)));
    let back = Contender { created: 6, ..line[0].clone() };
    client.claims.is_there(&mine, &back);
    line = vec![other(5, Share::Exclusive, None), back];
    assert_eq!(client.stands(&mine, &line, 6), waiting(1));
}

#[test]
fn a_claim_is_known_from_its_question_until_it_is_forgotten() {
    let mut client = Client::new();
    let mine = claim(1, 1, Share::Exclusive, None);
    let (name, now) = (&mine.name, Moment::default());
    let key = Space::new("t/").key(&mine, 0);
    assert!(!client.claims.knows(name, &key, Some(mine.id)));
    assert_eq!(client.claims.asking(&mine, 1), key);
    assert!(client.claims.knows(name, &key, None));
    // Under another key, as it may be after it was asked for again.
    assert!(client.claims.knows(name, b"t/a/other-1", Some(mine.id)));
    assert!(!client.claims.knows(name, b"t/a/other-1", None));
    client.claims.leaving(name, mine.id, now);
    assert!(client.claims.knows(name, &key, None));
    assert_eq!(client.claims.copies_until(), None);
    client.claims.forget(name, mine.id, now);
    assert!(!client.claims.knows(name, &key, Some(mine.id)));
    assert_eq!(client.claims.copies_until(), Some(now + LATEST));
}

#[test]
fn a_claim_that_was_left_is_known_until_no_question_for_it_may_arrive() {
    let mut client = Client::new();
    let mine = claim(1, 1, Share::Exclusive, None);
    let now = Moment::default();
    client.claims.asking(&mine, 1);
    // It is not in line, and its first question was not answered.
    assert_eq!(client.stands(&mine, &[], 2), Standing::Gone);
    assert!(client.claims.leaving(&mine.name, mine.id, now).is_some_and(|leaving| leaving.may_repeat));
    client.claims.answered(&mine);
    assert!(!client.claims.must_be_left(&mine, now));
    assert!(client.claims.leaving(&mine.name, mine.id, now).is_none());
}

#[test]
fn keys_are_used_again_and_never_by_two_claims_at_once() {
    let mut client = Client::new();
    let claims: Vec<_> = (1..=4).map(|serial| claim(1, serial, Share::Exclusive, None)).collect();
    let key = |client: &mut Client, serial: usize| client.claims.asking(&claims[serial], 1);
    let keys = [key(&mut client, 0), key(&mut client, 1), key(&mut client, 2)];
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    client.claims.forget(&claims[1].name, claims[1].id, Moment::default());
    assert_eq!(key(&mut client, 3), keys[1]);
}

/// The server says how far the stream is.
fn progresses(client: &mut Client, member_id: u64, revision: i64) -> Progress {
    let header = Some(ResponseHeader { revision, member_id, ..ResponseHeader::default() });
    let said = WatchResponse { header, watch_id: -1, ..WatchResponse::default() };
    client.claims.heard(said, Moment::default()).unwrap();
    *client.claims.progress().borrow()
}

/// A client that holds from revision 3 on, as the only one, and whose watch was made at revision 5.
fn holder() -> (Client, Arc<Claim>, Vec<Contender>) {
    let mut client = Client::new();
    let (mine, mut line) = (claim(1, 1, Share::Exclusive, None), Vec::new());
    assert_eq!(client.enter(&mine, &mut line, 3, 3), Standing::Held(held(3, 0)));
    client.claims.watch_whole(&mine.name, 4);
    client.watches(1, 5);
    (client, mine, line)
}

#[test]
fn a_hold_is_there_if_the_stream_told_all_up_to_a_revision_and_not_its_end() {
    let (mut client, mine, line) = holder();
    client.stands(&mine, &line, 6);
    assert_eq!(client.claims.covered(std::slice::from_ref(&mine)), 1);
    let told = progresses(&mut client, 9, 20);
    assert_eq!(told, Progress { member: 9, revision: 20 });
    let confirmed = Some((Standing::Held(held(3, 0)), 1));
    assert_eq!(client.claims.confirmed(&mine, told, 20), confirmed);
    assert_eq!(client.claims.confirmed(&mine, told, 12), confirmed);
    // The stream has not come that far.
    assert_eq!(client.claims.confirmed(&mine, told, 21), None);
    // Revisions went back: the last reading was at 6.
    assert_eq!(client.claims.confirmed(&mine, told, 5), None);
    client.hears(1, &line[0], 21);
    let told = progresses(&mut client, 9, 30);
    assert_eq!(client.claims.confirmed(&mine, told, 30), None);
}

#[test]
fn a_hold_that_was_not_read_since_its_watch_was_made_is_read() {
    let (mut client, mine, line) = holder();
    let told = progresses(&mut client, 9, 20);
    assert_eq!(client.claims.confirmed(&mine, told, 10), None);
    // Read before the watch was made.
    client.stands(&mine, &line, 4);
    assert_eq!(client.claims.confirmed(&mine, told, 10), None);
    client.stands(&mine, &line, 5);
    assert!(client.claims.confirmed(&mine, told, 10).is_some());
}

#[test]
fn what_a_stream_told_is_nothing_to_the_next_one() {
    let (mut client, mine, line) = holder();
    client.stands(&mine, &line, 6);
    let told = progresses(&mut client, 9, 20);
    assert!(client.claims.confirmed(&mine, told, 20).is_some());
    client.claims.closed();
    assert_eq!(client.claims.confirmed(&mine, told, 20), None);
    let (tell, _requests) = tokio::sync::mpsc::unbounded_channel();
    client.claims.opened(tell);
    client.watches(2, 22);
    let told = progresses(&mut client, 9, 25);
    assert_eq!(client.claims.confirmed(&mine, told, 25), None);
    client.stands(&mine, &line, 25);
    assert!(client.claims.confirmed(&mine, told, 25).is_some());
}

#[test]
fn only_progress_of_all_watches_counts() {
    let (mut client, ..) = holder();
    let header = Some(ResponseHeader { revision: 50, member_id: 9, ..ResponseHeader::default() });
    let of_one = WatchResponse { header: header.clone(), watch_id: 1, ..WatchResponse::default() };
    let canceled = WatchResponse { header, watch_id: -1, canceled: true, ..WatchResponse::default() };
    for response in [of_one, canceled] {
        client.claims.heard(response, Moment::default()).unwrap();
        assert_eq!(*client.claims.progress().borrow(), Progress::default());
    }
}

/// What a server finds of the keys of a line.
fn found(line: &[Contender]) -> Vec<KeyValue> {
    let found = line.iter().map(|claim| KeyValue {
        key: claim.key.clone(),
        create_revision: claim.created,
        lease: claim.lease,
        ..KeyValue::default()
    });
    found.collect()
}

/// A client that waits since revision 3 behind two others.
fn waiter(ahead: Share, owner: Option<&str>) -> (Client, Arc<Claim>, Vec<Contender>) {
    let mut client = Client::new();
    let mine = claim(1, 1, Share::Exclusive, None);
    let mut line = vec![other(1, ahead, owner), other(2, ahead, None)];
    assert_eq!(client.enter(&mine, &mut line, 3, 3), waiting(2));
    client.watches(1, 3);
    (client, mine, line)
}

#[test]
fn a_claim_waits_as_it_did_while_its_key_and_all_ahead_are_there() {
    let (mut client, mine, line) = waiter(Share::Shared, None);
    assert!(client.claims.unmoved_if(&mine).is_some());
    let mut seen = found(&line);
    // Those behind make no difference.
    seen.extend(found(&[other(4, Share::Exclusive, None)]));
    assert_eq!(client.claims.unmoved(&mine, &seen, 9), Some((waiting(2), 1)));
    for missing in 0..line.len() {
        let mut seen = found(&line);
        seen.remove(missing);
        assert_eq!(client.claims.unmoved(&mine, &seen, 9), None);
        // A key that was used again is another claim.
        let mut seen = found(&line);
        seen[missing].create_revision = 8;
        assert_eq!(client.claims.unmoved(&mine, &seen, 9), None);
    }
}

#[test]
fn a_claim_that_moved_on_while_it_was_asked_about_is_ahead_of_what_was_read() {
    let (mut client, mine, line) = waiter(Share::Shared, None);
    let seen = found(&line);
    client.hears(1, &line[0], 12);
    assert_eq!(client.claims.unmoved(&mine, &seen, 9), Some((waiting(1), 1)));
    client.hears(1, &line[1], 13);
    // It holds, which only a reading of its line confirms.
    assert_eq!(client.claims.unmoved(&mine, &seen, 9), None);
    assert_eq!(client.claims.unmoved_if(&mine), None);
}

#[test]
fn where_there_are_owners_ahead_the_line_is_read() {
    let (mut client, mine, line) = waiter(Share::Shared, Some("o"));
    assert_eq!(client.claims.unmoved_if(&mine), None);
    assert_eq!(client.claims.unmoved(&mine, &found(&line), 9), None);
}

#[test]
fn of_a_long_line_keys_are_read_together_and_of_a_very_long_one_all_is_read() {
    let behind = |ahead: i64| {
        let (mut client, mine) = (Client::new(), claim(1, 1, Share::Exclusive, None));
        let mut line: Vec<_> = (1..=ahead).map(|n| other(n, Share::Exclusive, None)).collect();
        client.enter(&mine, &mut line, ahead + 1, ahead + 1);
        client.claims.unmoved_if(&mine)
    };
    assert_eq!(behind(1).unwrap().len(), 2);
    let together = behind(10).unwrap();
    assert_eq!((together.len(), together[0].keys_only, together[0].max_create_revision), (1, true, 11));
    assert_eq!(behind(100), None);
}
