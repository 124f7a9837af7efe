//! Users with few rights: the fewest that suffice, and what is said when one is missing.

use std::{sync::Arc, time::Duration};

use test_servers::{Redis, Server};
use tidelock::{
    Name, Owner,
    backend::{
        Ask, Backend, Claim, ClaimId, ClientId, Entered, Failure, FailureKind, Leave, Scope, Share, Standing,
        What,
    },
    backends::redis::{RedisBackend, RedisConfig},
};

use crate::support::{LONG, NAME, Place, shared, within};

trials! {
    the_fewest_rights_suffice_for_scripts_and_each_of_them_is_needed,
    the_fewest_rights_suffice_for_functions_and_each_of_them_is_needed,
    the_fewest_rights_suffice_in_a_cluster_and_each_of_them_is_needed,
    more_rights_are_needed_for_replicas_and_databases_and_wanted_for_info,
    keys_and_channels_of_others_are_refused_with_one_sentence,
    a_library_that_was_not_loaded_is_said_with_the_fix,
}

/// What is called within scripts and functions, and `publish` or, in a cluster, `spublish`.
const WITHIN: &[&str] = &["+get", "+set", "+setrange", "+time"];

/// What a client calls itself.
const SCRIPTS: &[&str] = &["+publish", "+subscribe", "+scan", "+eval", "+evalsha"];
const FUNCTIONS: &[&str] = &["+publish", "+subscribe", "+scan", "+fcall"];
/// While a slot moves, `asking` too.
const CLUSTER: &[&str] = &["+spublish", "+ssubscribe", "+scan", "+eval", "+evalsha", "+cluster|slots"];

/// Makes a user with these commands on all servers, and gives the place as this user reaches it.
fn as_user(servers: &[&Server], place: &Place, name: &str, reach: &[&str], commands: &[&str]) -> Place {
    let user = format!("{}{name}", place.prefix.replace(':', "-"));
    let mut command = vec!["ACL", "SETUSER", &user, "reset", "on", ">secret"];
    command.extend(reach);
    command.extend(commands);
    for server in servers {
        server.command(&command).unwrap();
    }
    place.logged_in(&user, "secret")
}

/// The keys and channels of a place.
fn reach(place: &Place) -> [String; 2] {
    [format!("~{}*", place.prefix), format!("&{}in:*", place.prefix)]
}

fn claim(client: ClientId, serial: u64, owner: Option<&str>, ttl: Duration) -> Arc<Claim> {
    Arc::new(
        Claim::new(ClaimId::new(client, serial), Name::new(NAME).unwrap(), Share::Exclusive, ttl)
            .owner(owner.map(|owner| Owner::new(owner).unwrap()))
            .label("somebody"),
    )
}

/// Does all that a client ever does.
async fn tour(place: &Place) -> Result<(), Failure> {
    let client = ClientId::random();
    let backend = RedisBackend::connect(RedisConfig::from_url(&place.url()).unwrap(), client).await?;
    let name = Name::new(NAME).unwrap();
    let leave = |claim: &Arc<Claim>| backend.leave(&name, claim.id, Leave::Done);

    // One holds, another waits, and is told when its turn comes.
    let (first, second) = (claim(client, 1, None, LONG), claim(client, 2, Some("me"), LONG));
    assert!(matches!(backend.enter(&first, Ask::Queue).await?, Entered::Held(_)));
    assert!(matches!(backend.enter(&second, Ask::Queue).await?, Entered::Waiting(_)));
    backend.renew(&[Arc::clone(&first), Arc::clone(&second)]).await?;
    leave(&first).await?;
    let news = within("the second is told", backend.wait()).await?;
    assert!(news.id == second.id && matches!(news.what, What::Granted(_)));
    backend.leave(&name, second.id, Leave::evicted("enough")).await?;

    // An owner enters again.
    let (first, second) = (claim(client, 3, Some("me"), LONG), claim(client, 4, Some("me"), LONG));
    for claim in [&first, &second] {
        assert!(matches!(backend.enter(claim, Ask::Try).await?, Entered::Held(_)));
    }
    leave(&first).await?;
    leave(&second).await?;

    // The holder dies, and the waiter finds out.
    let dead = claim(client, 5, None, Duration::from_millis(50));
    let heir = claim(client, 6, None, LONG);
    assert!(matches!(backend.enter(&dead, Ask::Queue).await?, Entered::Held(_)));
    backend.enter(&heir, Ask::Queue).await?;
    while !matches!(*backend.renew(&[Arc::clone(&heir)]).await?, [Standing::Held(_)]) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(backend.look(&Scope::All).await?.len(), 1);
    leave(&heir).await.map(drop)
}

/// With all rights everything works, and without any one of them it is said.
async fn each_is_needed(servers: &[&Server], place: &Place, own: &[&str]) {
    let rights: Vec<_> = own.iter().chain(WITHIN).copied().collect();
    let [keys, channels] = reach(place);
    within("the tour ends", tour(&as_user(servers, place, "all", &[&keys, &channels], &rights)))
        .await
        .unwrap();
    for (number, missing) in rights.iter().enumerate() {
        // Scripts that others made known need not be sent.
        for server in servers {
            server.command(&["SCRIPT", "FLUSH"]).unwrap();
        }
        let fewer: Vec<_> = rights.iter().copied().filter(|right| right != missing).collect();
        // Keys of its own: what one tour could not clear away is not in the next one's way.
        let place = place.narrowed(number);
        let [keys, channels] = reach(&place);
        let place = as_user(servers, &place, "few", &[&keys, &channels], &fewer);
        let outcome = within("the tour ends", tour(&place)).await;
        let failure = outcome.expect_err(missing);
        assert_eq!(failure.kind, FailureKind::Denied, "{missing}: {failure}");
        assert!(failure.reason.contains("give the user the rights"), "{missing}: {failure}");
        assert!(!failure.reason.contains("channels"), "{missing} is not what was missed: {failure}");
    }
}

async fn the_fewest_rights_suffice_for_scripts_and_each_of_them_is_needed() {
    let server = Redis::new().start().unwrap();
    each_is_needed(&[&server], &Place::on(server.url()), SCRIPTS).await;
}

async fn the_fewest_rights_suffice_for_functions_and_each_of_them_is_needed() {
    let server = Redis::new().start().unwrap();
    server.command(&["FUNCTION", "LOAD", &RedisConfig::function_library()]).unwrap();
    each_is_needed(&[&server], &Place::on(server.url()).with("scripting=functions"), FUNCTIONS).await;
}

async fn the_fewest_rights_suffice_in_a_cluster_and_each_of_them_is_needed() {
    let cluster = Redis::new().start_cluster().unwrap();
    let members: Vec<_> = cluster.nodes().iter().collect();
    each_is_needed(&members, &Place::on(cluster.url()), CLUSTER).await;
}

async fn more_rights_are_needed_for_replicas_and_databases_and_wanted_for_info() {
    let servers = Redis::new().start_with_replicas(1).unwrap();
    let (master, place) = (&[servers.master()], Place::on(servers.master().url()));
    let [keys, channels] = reach(&place);
    let few: Vec<_> = SCRIPTS.iter().chain(WITHIN).copied().collect();
    for (option, right) in [("replicas=1&replicas_timeout_ms=5000", "+wait"), ("db=1", "+select")] {
        let place = place.with(option);
        let failure = tour(&as_user(master, &place, "few", &[&keys, &channels], &few)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Denied, "{right}: {failure}");
        assert!(failure.reason.contains("give the user the rights"), "{right}: {failure}");
        let more: Vec<_> = few.iter().copied().chain([right]).collect();
        let more = as_user(master, &place, "more", &[&keys, &channels], &more);
        within("a client connects", more.try_connect()).await.unwrap();
    }
    let silent = as_user(master, &place, "silent", &[&keys, &channels], &few).connect().await;
    assert!(silent.concerns().iter().any(|concern| concern.contains("+info")), "{:?}", silent.concerns());
    let more: Vec<_> = few.iter().copied().chain(["+info"]).collect();
    let told = as_user(master, &place, "told", &[&keys, &channels], &more).connect().await;
    assert!(told.concerns().iter().all(|concern| !concern.contains("+info")), "{:?}", told.concerns());
}

async fn keys_and_channels_of_others_are_refused_with_one_sentence() {
    let (server, place) = (shared(), Place::shared());
    let rights: Vec<_> = SCRIPTS.iter().chain(WITHIN).copied().collect();
    let [keys, channels] = reach(&place);
    for reach in [[&*keys, "&elsewhere:*"], ["~elsewhere:*", &*channels]] {
        let failure = tour(&as_user(&[&server], &place, "other", &reach, &rights)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Denied, "{failure}");
        assert!(failure.reason.contains("give the user the rights"), "{failure}");
    }
}

async fn a_library_that_was_not_loaded_is_said_with_the_fix() {
    let server = Redis::new().start().unwrap();
    let locks = Place::on(server.url()).with("scripting=functions").connect().await;
    let error = within("it is said", locks.mutex(NAME).lock()).await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("FUNCTION LOAD"), "{error}");
    server.command(&["FUNCTION", "LOAD", &RedisConfig::function_library()]).unwrap();
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
}
