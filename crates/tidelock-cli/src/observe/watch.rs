//! The one watch of the store that all viewers share: looks at everything seldom, and at what is on a screen often.

use std::{sync::Arc, time::Duration};

use tidelock::{Name, backend::LockView};
use tokio::time::{sleep, timeout};

use super::{Shared, lock::Asked};
use crate::clock::Moment;

/// How long the store has for a look at some names, and at everything.
const NAMES_LIMIT: Duration = Duration::from_secs(5);
const ALL_LIMIT: Duration = Duration::from_secs(120);
/// How long news are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(50);
/// How often it is looked for leases that end.
const LEASES: Duration = Duration::from_millis(500);
/// The most names in one look.
const CHUNK: usize = 256;

/// Watches while somebody views, until it is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        shared.is_wanted(true).await;
        tokio::select! {
            () = all(&shared) => {}
            () = names(&shared) => {}
            () = news(&shared) => {}
            () = leases(&shared) => {}
            () = shared.is_wanted(false) => shared.lose_sight("nobody looked"),
        }
    }
}

/// Looks at everything, again and again.
async fn all(shared: &Shared) {
    loop {
        let pause = match look(shared.locks.look_all(), ALL_LIMIT).await {
            Ok((views, asked)) => {
                let pause = shared.pace.after_all(asked.took());
                let missing = shared.saw_all(views, asked, pause);
                for names in missing.chunks(CHUNK) {
                    look_at(shared, names).await;
                }
                pause
            }
            Err(error) => {
                shared.failed(&error);
                shared.pace.after_error()
            }
        };
        sleep(pause).await;
        // A store that tells of changes is looked at all over only in case that it missed one.
        if shared.store_tells() {
            let _ = timeout(shared.pace.while_told(pause), shared.all_told.notified()).await;
        }
    }
}

/// Hears what changed, if the store tells it.
async fn news(shared: &Shared) {
    let Some(mut all) = shared.locks.follow_all() else { return std::future::pending().await };
    loop {
        let told = all.next().await;
        shared.set_tells(all.is_live());
        if told.missed {
            shared.all_told.notify_one();
        }
        shared.told(told.names);
        sleep(GATHER).await;
    }
}

/// Follows leases on a store that tells of changes: it does not tell when one ends, and is seldom looked at all over.
async fn leases(shared: &Shared) {
    loop {
        sleep(LEASES).await;
        if shared.store_tells() {
            shared.tell_due();
        }
    }
}

/// Looks at the names that are on a screen or are known to have changed, again and again.
async fn names(shared: &Shared) {
    loop {
        let names = shared.next_names(CHUNK);
        if names.is_empty() {
            shared.names_told.notified().await;
            continue;
        }
        let pause = match look_at(shared, &names).await {
            Some(took) => took,
            None => {
                sleep(shared.pace.after_error()).await;
                continue;
            }
        };
        sleep(shared.pace.after_names(pause, true)).await;
        // What is on a screen and did not change as far as anybody knows can wait for a little longer.
        let rest = shared.pace.after_names(pause, false).saturating_sub(shared.pace.after_names(pause, true));
        let _ = timeout(rest, shared.names_told.notified()).await;
    }
}

/// Looks at some names once, and says how long it took. Nothing if it failed.
async fn look_at(shared: &Shared, names: &[Name]) -> Option<Duration> {
    match look(shared.locks.look(names.iter().map(Name::as_str)), NAMES_LIMIT).await {
        Ok((views, asked)) => {
            shared.saw(names, views, asked);
            Some(asked.took())
        }
        Err(error) => {
            shared.failed(&error);
            None
        }
    }
}

async fn look(
    asking: impl Future<Output = tidelock::Result<Vec<LockView>>>,
    limit: Duration,
) -> Result<(Vec<LockView>, Asked), String> {
    let from = Moment::now();
    let views = match timeout(limit, asking).await {
        Ok(views) => views.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("the store did not answer a look within {} s", limit.as_secs())),
    };
    Ok((views, Asked { from, to: Moment::now() }))
}
