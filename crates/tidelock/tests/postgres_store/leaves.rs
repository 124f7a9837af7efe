//! Whether a claim was there when it was left: what makes a release of a lost lock an error.

use std::{sync::Arc, time::Duration};

use test_servers::{PgBouncer, Postgres, Server};
use tidelock::{
    Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Leave, Left, Share},
    backends::postgres::{PostgresBackend, PostgresConfig},
};

use crate::{
    sql,
    support::{LONG, NAME, within},
};

trials! {
    a_leave_says_whether_the_claim_was_there,
    a_leave_that_the_server_undid_and_that_was_repeated_has_removed_its_claim,
}

/// A client of a store, and the number of its last claim.
struct Client {
    backend: PostgresBackend,
    id: ClientId,
    next: u64,
}

impl Client {
    async fn connect(url: &str) -> Self {
        let id = ClientId::random();
        let config = PostgresConfig::from_url(url).unwrap();
        let backend = within("a client connects", PostgresBackend::connect(config, id)).await.unwrap();
        Self { backend, id, next: 0 }
    }

    fn claim(&mut self, share: Share, ttl: Duration) -> Arc<Claim> {
        self.next += 1;
        Arc::new(
            Claim::new(ClaimId::new(self.id, self.next), Name::new(NAME).unwrap(), share, ttl)
                .label("a client"),
        )
    }

    async fn enter(&mut self, share: Share, ttl: Duration) -> (Arc<Claim>, Entered) {
        let claim = self.claim(share, ttl);
        let entered = self.backend.enter(&claim, Ask::Queue).await.unwrap();
        (claim, entered)
    }

    async fn leave(&self, claim: &Claim) -> Left {
        within("it is left", self.backend.leave(&claim.name, claim.id, Leave::Done)).await.unwrap()
    }
}

async fn a_leave_says_whether_the_claim_was_there() {
    let server = Postgres::new().start().unwrap();
    let pooler = PgBouncer::new(3).start(&server).unwrap();
    let advisory = format!("{}?mode=advisory", server.url());
    for url in [server.url(), &advisory, pooler.url()] {
        let mut client = Client::connect(url).await;
        for share in [Share::Exclusive, Share::Shared] {
            // Alone, with others in line, and one that waits.
            let (first, _) = client.enter(share, LONG).await;
            assert_eq!(
                (client.leave(&first).await, client.leave(&first).await),
                (Left::Removed, Left::Absent)
            );
            let (first, _) = client.enter(share, LONG).await;
            let (second, _) = client.enter(share, LONG).await;
            let (third, entered) = client.enter(Share::Exclusive, LONG).await;
            assert!(matches!(entered, Entered::Waiting(_)), "{entered:?}");
            for claim in [&third, &first, &second] {
                assert_eq!(
                    (client.leave(claim).await, client.leave(claim).await),
                    (Left::Removed, Left::Absent)
                );
            }
        }
        // Its lease ended, and nobody has looked since.
        let (lapsed, _) = client.enter(Share::Exclusive, Duration::from_millis(200)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(client.leave(&lapsed).await, Left::Absent);
        // Somebody put it out, or its row away.
        let (evicted, _) = client.enter(Share::Exclusive, LONG).await;
        client.backend.leave(&evicted.name, evicted.id, Leave::evicted("by hand")).await.unwrap();
        assert_eq!(client.leave(&evicted).await, Left::Absent);
        let (deleted, _) = client.enter(Share::Exclusive, LONG).await;
        sql(&server, "DELETE FROM tidelock.line");
        assert_eq!(client.leave(&deleted).await, Left::Absent);
    }
}

/// Behind a pooler the default of the server applies: transactions that meet are undone.
async fn a_leave_that_the_server_undid_and_that_was_repeated_has_removed_its_claim() {
    let server: Server =
        Postgres::new().setting("default_transaction_isolation=serializable").start().unwrap();
    let pooler = PgBouncer::new(4).start(&server).unwrap();
    let mut turns = Vec::new();
    for _ in 0..4 {
        let mut client = Client::connect(pooler.url()).await;
        turns.push(tokio::spawn(async move {
            for _ in 0..40 {
                let claim = loop {
                    let claim = client.claim(Share::Shared, LONG);
                    // One that was undone too often changed nothing.
                    if client.backend.enter(&claim, Ask::Queue).await.is_ok() {
                        break claim;
                    }
                };
                loop {
                    if let Ok(left) = client.backend.leave(&claim.name, claim.id, Leave::Done).await {
                        assert_eq!(left, Left::Removed);
                        break;
                    }
                }
            }
        }));
    }
    for turn in turns {
        within("a client ends", turn).await.unwrap();
    }
    assert_eq!(sql(&server, "SELECT count(*) FROM tidelock.line WHERE claims IS NOT NULL"), "0");
}
