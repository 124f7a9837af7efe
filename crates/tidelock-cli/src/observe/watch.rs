//! The one watch of the store that all viewers share: looks at everything seldom, and at what is on a screen often.

use std::{sync::Arc, time::Duration};

use tidelock::{HowEnded, LossReason, Name, backend::LockView};
use tokio::time::{sleep, timeout};

use super::{Shared, endings::GRACE, event::Ending, lock::Asked};
use crate::clock::Moment;

/// How long the store has for a look at some names, and at everything.
const NAMES_LIMIT: Duration = Duration::from_secs(5);
const ALL_LIMIT: Duration = Duration::from_secs(120);
/// How long news are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(50);
/// How often it is looked for leases that end.
const LEASES: Duration = Duration::from_millis(500);
/// How often viewers are told what is new, at most.
const TELL: Duration = Duration::from_millis(250);
/// How many names are in one look, at first.
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
            () = own_endings(&shared) => {}
            () = unknown_endings(&shared) => {}
            () = viewers(&shared) => {}
            () = shared.is_wanted(false) => shared.lose_sight("nobody looked"),
        }
        // Nobody listens any more: what happens until somebody does again is not told.
        shared.set_tells(false, None);
    }
}

/// Looks at everything, again and again.
async fn all(shared: &Shared) {
    loop {
        let pause = match look(shared.locks.look_all(), ALL_LIMIT).await {
            Ok((views, asked)) => {
                let pause = shared.pace.after_all(asked.took());
                let rest = if shared.store_tells() { shared.pace.while_told(pause) } else { Duration::ZERO };
                let missing = shared.saw_all(views, asked, pause + rest);
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
    let mut since = None;
    loop {
        let told = all.next().await;
        if told.missed || !all.is_live() {
            since = None;
        }
        if all.is_live() && all.tells_evictions() {
            since.get_or_insert_with(Moment::now);
        }
        shared.set_tells(all.is_live(), since);
        if told.missed {
            shared.all_told.notify_one();
        }
        for (claim, reason) in told.evicted {
            shared.tell(None, claim, Ending::Evicted { reason });
        }
        shared.told(told.names);
        sleep(GATHER).await;
    }
}

/// Hears what became of the claims of this very client: those held through a server, for example.
async fn own_endings(shared: &Shared) {
    let mut endings = shared.locks.endings();
    while let Some(ended) = endings.next().await {
        let how = match ended.how {
            HowEnded::Released => Ending::Released,
            HowEnded::Evicted(reason) => Ending::Evicted { reason },
            HowEnded::Lost(reason) => Ending::Lost { reason: why_lost(reason).into() },
            _ => continue,
        };
        shared.tell(Some(&ended.name), ended.claim, how);
        shared.told([ended.name]);
    }
    std::future::pending().await
}

fn why_lost(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "its lease expired before it was renewed",
        LossReason::Gone => "the store did not know it any more",
        LossReason::Evicted => "it was evicted",
        LossReason::MaxHold => "it was held for as long as max_hold allows",
        LossReason::Closed => "its program was shut down",
        _ => "it was lost",
    }
}

/// Says of claims that are gone that nobody knows why, when nobody said it in time.
async fn unknown_endings(shared: &Shared) {
    loop {
        shared.gone.notified().await;
        sleep(GRACE).await;
        shared.say_pending();
    }
}

/// Follows leases: no store tells when one ends, and those that tell of changes or are slow are seldom looked at all over.
async fn leases(shared: &Shared) {
    loop {
        sleep(LEASES).await;
        shared.tell_due();
    }
}

/// Tells viewers what is new, all at once and not too often.
async fn viewers(shared: &Shared) {
    loop {
        shared.changed.notified().await;
        shared.wake_viewers();
        sleep(TELL).await;
    }
}

/// Looks at the names that are on a screen or are known to have changed, again and again.
async fn names(shared: &Shared) {
    let mut most = CHUNK;
    loop {
        let names = shared.next_names(most);
        if names.is_empty() {
            // Something may have to be looked at all the same.
            let _ = timeout(shared.pace.later(), shared.names_told.notified()).await;
            continue;
        }
        let Some(took) = look_at(shared, &names).await else {
            // Nobody tells of them again.
            shared.told(names);
            sleep(shared.pace.after_error()).await;
            continue;
        };
        most = shared.pace.names_after(most, names.len(), took);
        sleep(shared.pace.after_names(took, true)).await;
        // What is on a screen and did not change as far as anybody knows can wait for a little longer.
        let rest = shared.pace.after_names(took, false).saturating_sub(shared.pace.after_names(took, true));
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
