//! Renewals of many claims in one call, on stores that renew those together which need no rule.
//!
//! A claim alone is renewed with the verb, and several go together first. Those that went together were renewed at the same time
//! of the server, to the microsecond: that is how a trial sees that they did.

use std::{
    collections::HashSet,
    pin::Pin,
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use test_servers::Server;
use tidelock::{
    Name, Owner,
    backend::{
        Ask, Backend, Claim, ClaimId, ClientId, Entered, Failure, Leave, Left, LockView, Scope, Share,
        Standing,
    },
};

use crate::{
    RENEWALS,
    support::{LONG, Place, eventually, shared, within},
};

trials! {
    renewals_that_go_together_are_answered_as_the_verb_answers_each,
    several_claims_of_one_line_are_renewed_together,
    a_claim_under_the_name_of_another_line_is_gone_and_not_renewed,
    a_claim_that_was_evicted_is_gone_in_a_call_that_renews_others,
    a_claim_that_expired_is_gone_in_a_call_that_renews_others,
    a_holder_that_expired_makes_way_in_a_call_that_renews_others,
    a_line_that_a_transaction_keeps_locked_is_no_answer_for_its_claim_only,
    a_statement_that_fails_is_no_answer_for_any_of_its_claims,
    a_server_that_restarts_between_two_renewals_keeps_what_was_confirmed,
    clients_that_renew_in_the_same_lines_at_once_do_not_block_each_other,
}

/// What these trials need of a database.
pub(crate) struct Database {
    /// A client of the store.
    pub(crate) connect: fn(String, ClientId) -> Connecting,
    /// When the claims of a place lapse, in microseconds.
    pub(crate) lapses: fn(&Server, &Place) -> Vec<i64>,
    /// The statement that locks the line of a name, without the words that say whether to wait.
    pub(crate) lock: fn(&Place, &str) -> String,
    /// Makes every change of a claim in the longer line of a name fail as on a disk that is full.
    pub(crate) spoil: fn(&Server, &Place, &str),
    /// Sees to it that a crash undoes nothing of what was answered.
    pub(crate) write_down: fn(&Server),
    /// The arguments of its client that run a statement.
    pub(crate) run: &'static str,
}

pub(crate) type Connecting = Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>>;

/// A client of a store, and the number of its last claim.
pub(crate) struct Client {
    pub(crate) backend: Arc<dyn Backend>,
    id: ClientId,
    next: u64,
}

impl Client {
    pub(crate) async fn connect(place: &Place) -> Self {
        let id = ClientId::random();
        let backend = within("a client connects", (RENEWALS.connect)(place.url(), id)).await;
        Self { backend, id, next: 0 }
    }

    fn claim(&mut self, name: &str, share: Share, ttl: Duration) -> Claim {
        self.next += 1;
        Claim::new(ClaimId::new(self.id, self.next), Name::new(name).unwrap(), share, ttl).label("a client")
    }

    async fn put(&self, claim: Claim) -> Arc<Claim> {
        let claim = Arc::new(claim);
        let entered = within("it enters", self.backend.enter(&claim, Ask::Queue)).await.unwrap();
        assert!(matches!(entered, Entered::Held(_) | Entered::Waiting(_)), "{entered:?}");
        claim
    }

    /// A new claim that is in line.
    pub(crate) async fn enter(&mut self, name: &str, share: Share, ttl: Duration) -> Arc<Claim> {
        let claim = self.claim(name, share, ttl);
        self.put(claim).await
    }

    /// A new claim for all of a lock, for as long as a trial takes.
    pub(crate) async fn lock(&mut self, name: &str) -> Arc<Claim> {
        self.enter(name, Share::Exclusive, LONG).await
    }

    pub(crate) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Failure> {
        within("it is answered", self.backend.renew(claims)).await
    }

    pub(crate) async fn leave(&self, claim: &Claim) -> Left {
        within("it is left", self.backend.leave(&claim.name, claim.id, Leave::Done)).await.unwrap()
    }

    /// Waits until a claim has lapsed, by the clock of the server.
    async fn until_lapsed(&self, claim: &Claim) {
        let names = Scope::Names(vec![claim.name.clone()]);
        let looking = async {
            while is_seen(&self.backend.look(&names).await.unwrap(), claim.id) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within("it has lapsed", looking).await;
    }
}

fn is_seen(views: &[LockView], id: ClaimId) -> bool {
    views.iter().flat_map(|view| view.holders.iter().chain(&view.waiters)).any(|view| view.id == id)
}

/// What does not depend on when it was asked.
fn lasting(standing: &Standing) -> String {
    match standing {
        Standing::Held(grant) => format!("holds {} {:?} {}", grant.epoch, grant.ttl, grant.waiting),
        Standing::Waiting(place) => format!("waits {} {}", place.ahead, place.lapse_in.is_some()),
        other => format!("{other:?}"),
    }
}

fn holds(standing: &Standing) -> bool {
    matches!(standing, Standing::Held(_))
}

/// Of the claims of a place with equal leases so many were renewed with others.
fn went_together(server: &Server, place: &Place) -> usize {
    let lapses = (RENEWALS.lapses)(server, place);
    let moments: HashSet<_> = lapses.iter().collect();
    lapses.len() - moments.len()
}

/// A transaction that has the line of a name locked.
struct Locked(Child);

impl Locked {
    async fn line(server: &Server, place: &Place, name: &str) -> Self {
        let lock = (RENEWALS.lock)(place, name);
        let mut client = server.client();
        let mut child = client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.as_mut().unwrap();
        std::io::Write::write_all(stdin, format!("BEGIN;\n{lock} FOR UPDATE;\n").as_bytes()).unwrap();
        let free = format!("{lock} FOR UPDATE SKIP LOCKED");
        eventually("it is locked", || server.ask(&[RENEWALS.run, &free]).unwrap().trim().is_empty()).await;
        Self(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn renewals_that_go_together_are_answered_as_the_verb_answers_each() {
    let place = Place::shared();
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let permits = |n| Share::Permits { n, of: 3 };
    let mut claims = vec![one.lock("alone").await, one.lock("alone too").await, one.lock("wanted").await];
    other.lock("wanted").await;
    other.lock("taken").await;
    claims.push(one.lock("taken").await);
    other.lock("taken").await;
    claims.push(one.lock("taken").await);
    other.enter("read", Share::Shared, LONG).await;
    for share in [Share::Shared, Share::Shared, Share::Exclusive, Share::Shared] {
        claims.push(one.enter("read", share, LONG).await);
    }
    for n in [1, 2, 2] {
        claims.push(one.enter("permits", permits(n), LONG).await);
    }
    let owner = Some(Owner::new("somebody").unwrap());
    for _ in 0..2 {
        let claim = one.claim("ridden", Share::Exclusive, LONG).owner(owner.clone());
        claims.push(one.put(claim).await);
    }
    other.lock("ridden").await;
    // Never entered, and for a line that is not there.
    claims.push(Arc::new(one.claim("wanted", Share::Exclusive, LONG)));
    claims.push(Arc::new(one.claim("unheard of", Share::Exclusive, LONG)));
    // One of another client, as a ticket may be.
    claims.push(other.lock("ticket").await);
    let together: Vec<_> = one.renew(&claims).await.unwrap().iter().map(lasting).collect();
    assert!(went_together(&shared(), &place) >= claims.len() / 2, "each went alone");
    for (claim, together) in claims.iter().zip(together) {
        let alone = one.renew(std::slice::from_ref(claim)).await.unwrap();
        assert_eq!((claim, together), (claim, lasting(&alone[0])));
    }
}

async fn several_claims_of_one_line_are_renewed_together() {
    let place = Place::shared();
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let held = other.lock("line").await;
    let mut claims = Vec::new();
    for _ in 0..6 {
        claims.push(one.lock("line").await);
        other.lock("line").await;
    }
    let standings = one.renew(&claims).await.unwrap();
    for (number, standing) in standings.iter().enumerate() {
        let Standing::Waiting(place) = standing else { panic!("{standing:?}") };
        assert_eq!((place.ahead as usize, place.lapse_in.is_some()), (2 * number + 1, number == 0));
    }
    assert_eq!(went_together(&shared(), &place), 5);
    // The order is as it was.
    assert_eq!(other.leave(&held).await, Left::Removed);
    let standings = one.renew(&claims).await.unwrap();
    assert!(holds(&standings[0]) && !standings[1..].iter().any(holds), "{standings:?}");
}

async fn a_claim_under_the_name_of_another_line_is_gone_and_not_renewed() {
    let (server, place) = (shared(), Place::shared());
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let claims = [one.lock("a").await, one.lock("b").await, one.lock("c").await];
    for name in ["a", "b"] {
        other.lock(name).await;
    }
    let strange = Arc::new(Claim::new(claims[0].id, claims[1].name.clone(), Share::Exclusive, LONG));
    let before = (RENEWALS.lapses)(&server, &place);
    let batch = [strange, Arc::clone(&claims[1]), Arc::clone(&claims[2])];
    let standings = one.renew(&batch).await.unwrap();
    assert!(standings[0] == Standing::Gone && standings[1..].iter().all(holds), "{standings:?}");
    let after = (RENEWALS.lapses)(&server, &place);
    let changed = after.iter().filter(|lapses| !before.contains(lapses)).count();
    assert_eq!(changed, 2, "{before:?}, {after:?}");
}

async fn a_claim_that_was_evicted_is_gone_in_a_call_that_renews_others() {
    let place = Place::shared();
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    other.lock("b").await;
    let claims = [one.lock("a").await, one.lock("b").await, one.lock("c").await, one.lock("d").await];
    let behind = other.lock("c").await;
    for evicted in &claims[1..3] {
        let why = Leave::evicted("by hand");
        assert_eq!(other.backend.leave(&evicted.name, evicted.id, why).await.unwrap(), Left::Removed);
    }
    for _ in 0..2 {
        let standings = one.renew(&claims).await.unwrap();
        assert!(holds(&standings[0]) && holds(&standings[3]), "{standings:?}");
        assert_eq!(standings[1..3], [Standing::Gone, Standing::Gone]);
        assert!(holds(&other.renew(std::slice::from_ref(&behind)).await.unwrap()[0]));
    }
}

async fn a_claim_that_expired_is_gone_in_a_call_that_renews_others() {
    let place = Place::shared();
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let held = other.lock("b").await;
    let short = Duration::from_millis(600);
    let claims = [
        one.lock("a").await,
        one.enter("b", Share::Exclusive, short).await,
        one.enter("c", Share::Exclusive, short).await,
        one.lock("d").await,
    ];
    one.until_lapsed(&claims[1]).await;
    one.until_lapsed(&claims[2]).await;
    let standings = one.renew(&claims).await.unwrap();
    assert!(holds(&standings[0]) && holds(&standings[3]), "{standings:?}");
    assert_eq!(standings[1..3], [Standing::Gone, Standing::Gone]);
    assert!(holds(&other.renew(&[held]).await.unwrap()[0]));
}

async fn a_holder_that_expired_makes_way_in_a_call_that_renews_others() {
    let place = Place::shared();
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let held = other.enter("b", Share::Exclusive, Duration::from_millis(600)).await;
    let claims = [one.lock("a").await, one.lock("b").await, one.lock("c").await];
    other.until_lapsed(&held).await;
    // The rule that grants it is that of the verb.
    let standings = one.renew(&claims).await.unwrap();
    assert!(standings.iter().all(holds), "{standings:?}");
    assert_eq!(other.renew(&[held]).await.unwrap(), [Standing::Gone]);
}

async fn a_line_that_a_transaction_keeps_locked_is_no_answer_for_its_claim_only() {
    let (server, place) = (shared(), Place::shared());
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let claims = [one.lock("a").await, one.lock("b").await, one.lock("c").await];
    other.lock("b").await;
    one.renew(&claims).await.unwrap();
    let before = (RENEWALS.lapses)(&server, &place);
    let locked = Locked::line(&server, &place, "b").await;
    let standings = one.renew(&claims).await.unwrap();
    assert!(holds(&standings[0]) && holds(&standings[2]), "{standings:?}");
    assert_eq!(standings[1], Standing::Unknown);
    let after = (RENEWALS.lapses)(&server, &place);
    let changed = after.iter().filter(|lapses| !before.contains(lapses)).count();
    assert_eq!(changed, 2, "{before:?}, {after:?}");
    locked.end();
    let standings = one.renew(&claims).await.unwrap();
    assert!(standings.iter().all(holds), "{standings:?}");
}

async fn a_statement_that_fails_is_no_answer_for_any_of_its_claims() {
    let server = (crate::STORE.start)();
    let place = Place::at(&server);
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let claims = [one.lock("a").await, one.lock("b").await, one.lock("c").await];
    other.lock("b").await;
    one.renew(&claims).await.unwrap();
    let before = (RENEWALS.lapses)(&server, &place);
    (RENEWALS.spoil)(&server, &place, "b");
    let failure = one.renew(&claims).await.unwrap_err();
    assert!(!failure.reason.is_empty());
    assert_eq!((RENEWALS.lapses)(&server, &place), before, "it was undone");
}

async fn a_server_that_restarts_between_two_renewals_keeps_what_was_confirmed() {
    let server = (crate::STORE.start)();
    let place = Place::at(&server);
    let (mut one, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    other.lock("b").await;
    let claims = [one.lock("a").await, one.lock("b").await, one.lock("c").await];
    let before: Vec<_> = one.renew(&claims).await.unwrap().iter().map(lasting).collect();
    (RENEWALS.write_down)(&server);
    server.kill().unwrap();
    one.renew(&claims).await.unwrap_err();
    server.restart().unwrap();
    let asking = async {
        loop {
            if let Ok(standings) = one.renew(&claims).await {
                return standings.iter().map(lasting).collect::<Vec<_>>();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(within("it is answered again", asking).await, before);
}

async fn clients_that_renew_in_the_same_lines_at_once_do_not_block_each_other() {
    const LINES: usize = 12;
    let place = Place::shared();
    let mut clients = Vec::new();
    for number in 0..3 {
        let mut client = Client::connect(&place).await;
        let mut claims = Vec::new();
        for line in 0..LINES {
            claims.push(client.lock(&format!("line {:02}", (line * (number + 1)) % 13)).await);
        }
        clients.push((client, claims));
    }
    let mut renewing = Vec::new();
    for (client, mut claims) in clients {
        renewing.push(tokio::spawn(async move {
            for _ in 0..40 {
                claims.reverse();
                let standings = client.renew(&claims).await.unwrap();
                let all_known =
                    !standings.iter().any(|one| matches!(one, Standing::Gone | Standing::Unknown));
                assert!(all_known, "{standings:?}");
            }
        }));
    }
    for renewed in renewing {
        within("all are renewed", renewed).await.unwrap();
    }
}
