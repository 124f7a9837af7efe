//! Databases with the schema of the version before, and clients of both versions at once.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::Duration,
};

use test_servers::{Postgres, Server};
use tidelock::{backend::Standing, backends::postgres::schema};

use crate::{
    renewals::Client,
    sql,
    support::{LONG, NAME, Place, eventually, got, until_idle, until_waiting, waiter, within},
};

trials! {
    clients_of_both_versions_hand_locks_over_while_the_schema_is_brought_up_to_date,
    a_role_with_the_rights_of_the_version_before_goes_on_when_the_schema_is_brought_up_to_date,
    the_first_client_of_the_new_version_waits_for_leases_from_before,
}

/// What the first revision installs.
const FIRST: [&str; 6] = [
    include_str!("revision_1/tables.sql"),
    include_str!("revision_1/rules.sql"),
    include_str!("revision_1/verbs.sql"),
    include_str!("revision_1/advisory.sql"),
    include_str!("revision_1/stock.sql"),
    include_str!("revision_1/rights.sql"),
];

/// What the revisions after it install.
const SECOND: &str = include_str!("revision_2.sql");
const THIRD: &str = include_str!("revision_3.sql");
const FOURTH: &str = include_str!("revision_4.sql");

/// A server with the schema of the first revision.
fn before() -> Server {
    with(&FIRST.join("\n"))
}

fn with(schema: &str) -> Server {
    let server = Postgres::new().start().unwrap();
    server.ask(&["-1", "-c", schema]).unwrap();
    server
}

/// A session of a client of the version before, with its statements.
struct Old {
    psql: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    prefix: String,
    /// What it is answered when it has left.
    left: &'static str,
}

impl Old {
    fn connect(server: &Server, place: &Place) -> Self {
        Self::of_revision(1, server, place)
    }

    fn of_revision(revision: u32, server: &Server, place: &Place) -> Self {
        let mut psql = server.client().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (asks, answers) = (psql.stdin.take().unwrap(), BufReader::new(psql.stdout.take().unwrap()));
        let (leave, left) = if revision == 1 { ("leave", "") } else { ("exit", "t") };
        let mut old = Self { psql, asks, answers, prefix: place.prefix.clone(), left };
        assert_eq!(old.ask("SELECT tidelock.version() <= 1"), "t");
        old.ask("SELECT quiet_left FROM tidelock.hello()");
        for statement in [
            "PREPARE enter (text, uuid) AS SELECT tidelock.enter($1, $2, false, 20000000, 0::smallint, 1, 0, false, NULL, 'old')",
            "PREPARE renew (text[], uuid[]) AS SELECT tidelock.renew($1, $2)",
            &format!("PREPARE leave (text, uuid, text) AS SELECT tidelock.{leave}($1, $2, $3)"),
        ] {
            old.ask(&format!("{statement}; SELECT 1"));
        }
        old
    }

    fn ask(&mut self, text: &str) -> String {
        writeln!(self.asks, "{text};").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn id(number: u32) -> String {
        format!("'0badc0de-0000-0000-0000-{number:012}'")
    }

    fn enter(&mut self, name: &str, number: u32) -> String {
        self.ask(&format!("EXECUTE enter ('{}{name}', {})", self.prefix, Self::id(number)))
    }

    fn holds(&mut self, name: &str, number: u32) -> bool {
        let text =
            format!("EXECUTE renew (ARRAY['{}{name}'], ARRAY[{}::uuid])", self.prefix, Self::id(number));
        self.ask(&text).starts_with("{1,")
    }

    fn leave(&mut self, name: &str, number: u32) {
        let text = format!("EXECUTE leave ('{}{name}', {}, NULL)", self.prefix, Self::id(number));
        assert_eq!(self.ask(&text), self.left);
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

async fn clients_of_both_versions_hand_locks_over_while_the_schema_is_brought_up_to_date() {
    hand_over_between_revisions(1, before()).await;
    hand_over_between_revisions(2, with(SECOND)).await;
    hand_over_between_revisions(3, with(THIRD)).await;
    hand_over_between_revisions(4, with(FOURTH)).await;
}

async fn hand_over_between_revisions(revision: u32, server: Server) {
    let place = Place::on(server.url());
    let mut old = Old::of_revision(revision, &server, &place);
    assert!(old.enter(NAME, 1).starts_with("{1,"));
    // The first of the new version installs its own, under a claim and a session of the old one.
    let locks = place.connect().await;
    assert_eq!(sql(&server, "SELECT tidelock.version(), tidelock.revision()"), "1|5");
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    assert!(old.holds(NAME, 1) && !waiting.is_finished());
    old.leave(NAME, 1);
    let guard = got(waiting).await;
    // And back, to a session from before and to one that is new.
    let mut later = Old::of_revision(revision, &server, &place);
    assert!(old.enter(NAME, 2).starts_with("{2,") && later.enter(NAME, 3).starts_with("{2,"));
    guard.release().await.unwrap();
    // A session from before is not quiet: a waiter there gets it when it asks.
    assert!(old.holds(NAME, 2) && !later.holds(NAME, 3));
    old.leave(NAME, 2);
    assert!(later.holds(NAME, 3));
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    later.leave(NAME, 3);
    until_idle(&locks, NAME).await;
    // What an old one changes is told to those who follow.
    let mut watch = locks.election("led").watch();
    assert_eq!(within("nobody leads", watch.next()).await.unwrap().unwrap(), None);
    let is_followed = "SELECT count(*) FROM tidelock.line WHERE followed";
    eventually("it is followed", || sql(&server, is_followed) == "1").await;
    assert!(old.enter("led", 5).starts_with("{1,"));
    assert!(within("it leads", watch.next()).await.unwrap().unwrap().is_some());
    old.leave("led", 5);
    assert_eq!(within("nobody leads", watch.next()).await.unwrap().unwrap(), None);
    // Claims that go together meet those of the old ones.
    let names: Vec<String> = (0..8).map(|number| format!("many {number}")).collect();
    assert!(old.enter(&names[3], 4).starts_with("{1,"));
    let waiting: Vec<_> = names.iter().map(|name| waiter(&locks, name, LONG)).collect();
    until_waiting(&locks, &names[3], 1).await;
    old.leave(&names[3], 4);
    for waiting in waiting {
        got(waiting).await.release().await.unwrap();
    }
    // And so do renewals that go together.
    let mut new = Client::connect(&place).await;
    assert!(old.enter("a", 6).starts_with("{1,") && old.enter("b", 7).starts_with("{1,"));
    let claims = [new.lock("a").await, new.lock("b").await, new.lock("c").await];
    for _ in 0..2 {
        assert!(old.holds("a", 6) && old.holds("b", 7));
        let standings = new.renew(&claims).await.unwrap();
        let holds = standings.iter().map(|standing| matches!(standing, Standing::Held(_)));
        assert_eq!(holds.collect::<Vec<_>>(), [false, false, true]);
    }
    old.leave("a", 6);
    let standings = new.renew(&claims).await.unwrap();
    assert!(matches!(standings[0], Standing::Held(_)) && matches!(standings[1], Standing::Waiting(_)));
    assert!(old.holds("b", 7));
}

async fn a_role_with_the_rights_of_the_version_before_goes_on_when_the_schema_is_brought_up_to_date() {
    let server = before();
    sql(&server, "CREATE ROLE app LOGIN; CREATE ROLE other LOGIN");
    sql(
        &server,
        "GRANT USAGE ON SCHEMA tidelock TO app, other; GRANT EXECUTE ON FUNCTION tidelock.version, tidelock.hello, tidelock.enter, tidelock.renew, tidelock.leave, tidelock.shut_out, tidelock.look, tidelock.peek TO app",
    );
    let app = Place::on(server.url()).logged_in("app", "");
    let error = app.try_connect().await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("tidelock schema --print postgres"), "{error}");
    sql(&server, &schema());
    app.serves().await;
    assert_eq!(
        sql(
            &server,
            "SELECT bool_and(has_function_privilege('app', p.oid, 'EXECUTE')) FROM pg_proc p WHERE p.pronamespace = 'tidelock'::regnamespace AND p.proname IN ('exit', 'together', 'follow', 'renew_together')"
        ),
        "t"
    );
    let error = app.logged_in("other", "").try_connect().await.unwrap_err();
    assert!(error.is_denied(), "{error}");
}

/// The version before does not say whether its rows were copied.
async fn the_first_client_of_the_new_version_waits_for_leases_from_before() {
    let server = before();
    let place = Place::on(server.url());
    let mut old = Old::connect(&server, &place);
    sql(&server, "UPDATE tidelock.state SET longest = 2000000");
    let locks = place.connect().await;
    assert!(old.enter("held", 1).starts_with("{1,"), "a session from before knows that nothing was lost");
    let tried = locks.mutex(NAME).ttl(Duration::from_secs(1)).try_lock().await;
    assert!(!matches!(tried, Ok(None)), "{tried:?}");
    let guard = within("it is granted", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    guard.release().await.unwrap();
    old.leave("held", 1);
}
