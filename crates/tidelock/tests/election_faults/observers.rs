//! Observers of elections under faults: their connections are closed, cut and hang, servers are restarted, leaders are
//! evicted. No change is missed that lasts, no leader is shown for longer than its ttl after it ended, and terms grow.
//! Before that, without faults, it is measured how soon a change is seen.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use test_servers::Proxy;
use tidelock::{Guard, Locks, Token, Watch};

use crate::{PATIENCE, Stand};

/// The election.
const NAME: &str = "observed";
/// The lease of a leader.
const TTL: Duration = Duration::from_secs(3);
/// What a busy machine may add to it.
const BUSY: Duration = Duration::from_secs(2);
/// How many changes are measured.
const MEASURED: usize = 50;

/// What happens to the observer, its store or the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Its connections are closed.
    Disconnect,
    /// Its connections are closed, and it cannot connect until the leader has ended.
    Cut,
    /// It gets no answers until the leader has ended.
    Hang,
    Restart,
    Evict,
}

pub(crate) async fn play(store: &str, stand: Stand) -> Result<(), Failed> {
    let (mut url, mut proxies) = (stand.url.clone(), Vec::new());
    // A door of its own: leaders are not cut off with it.
    for (server, door) in stand.servers().iter().zip(&stand.doors) {
        let proxy = Proxy::start(server.addr())?;
        url = url.replace(&door.addr().to_string(), &proxy.addr().to_string());
        proxies.push(proxy);
    }
    let leader = Locks::connect_within(&stand.url, PATIENCE).await?;
    let observer = Locks::connect_within(&url, PATIENCE).await?;
    let connections = || proxies.iter().map(Proxy::connections).sum::<usize>();
    let before = connections();
    let mut eyes = Eyes { watch: observer.election(NAME).watch(), last: None };
    eyes.until("nobody leads yet", |seen| seen.is_none()).await;
    let (led, ended) = measure(&leader, &mut eyes).await?;
    println!(
        "{store}: half of {MEASURED} leaders are seen within {led:?}, half of their ends within {ended:?}"
    );

    drop(eyes);
    if store.starts_with("red") {
        // It listens on connections of their own, while somebody follows.
        let is_closed = async {
            while connections() > before {
                tokio::time::sleep(Duration::from_millis(5)).await
            }
        };
        tokio::time::timeout(PATIENCE, is_closed).await?;
    }
    let mut eyes = Eyes { watch: observer.election(NAME).watch(), last: None };
    eyes.until("nobody leads", |seen| seen.is_none()).await;

    let faults = [Fault::Disconnect, Fault::Cut, Fault::Hang, Fault::Restart, Fault::Evict];
    let without_server = |fault: &Fault| *fault == Fault::Evict;
    for fault in faults.into_iter().filter(|fault| !proxies.is_empty() || without_server(fault)) {
        let lead = campaign(&leader).await?;
        let token = lead.token();
        eyes.until("the leader", |seen| seen == Some(token)).await;
        for proxy in &proxies {
            match fault {
                Fault::Disconnect => proxy.disconnect(),
                Fault::Cut => proxy.cut(),
                Fault::Hang => proxy.swallow_replies(),
                Fault::Restart | Fault::Evict => {}
            }
        }
        if fault == Fault::Restart {
            stand.restart()?;
        }
        let ends = Instant::now();
        end(&leader, lead, fault).await;
        eyes.until("it does not lead any more", |seen| seen != Some(token)).await;
        let stale = ends.elapsed();
        assert!(stale <= TTL + BUSY, "{fault:?}: shown for {stale:?} after it ended");
        for proxy in &proxies {
            proxy.heal()?;
        }
        let lead = campaign(&leader).await?;
        let began = Instant::now();
        eyes.until("the next leader", |seen| seen == Some(lead.token())).await;
        println!(
            "{store}: {fault:?}: the end was seen after {stale:?}, the next after {:?}",
            began.elapsed()
        );
        lead.release().await?;
        eyes.until("nobody leads again", |seen| seen.is_none()).await;
    }
    Ok(())
}

/// Leads, as soon as the store lets it.
async fn campaign(locks: &Locks) -> Result<Guard, Failed> {
    Ok(tokio::time::timeout(PATIENCE, locks.election(NAME).ttl(TTL).campaign()).await??)
}

/// Ends a term.
async fn end(locks: &Locks, lead: Guard, fault: Fault) {
    if fault == Fault::Evict {
        let seen = locks.look([NAME]).await.expect("the store answers");
        locks.evict(NAME, seen[0].holders[0].id, "by hand").await.expect("it is there");
        lead.lost().await;
    } else {
        // With a server that was restarted, it may have been lost.
        let _ = lead.release().await;
    }
}

/// How soon a leader is seen after it leads, and how soon its end: half of them within this time.
async fn measure(leader: &Locks, eyes: &mut Eyes) -> Result<(Duration, Duration), Failed> {
    let (mut led, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..MEASURED {
        // Longer than the pace of the questions that a change would be seen by anyway.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let lead = campaign(leader).await?;
        let at = Instant::now();
        eyes.until("the leader", |seen| seen == Some(lead.token())).await;
        led.push(at.elapsed());
        lead.release().await?;
        let at = Instant::now();
        eyes.until("nobody", |seen| seen.is_none()).await;
        ended.push(at.elapsed());
    }
    led.sort_unstable();
    ended.sort_unstable();
    Ok((led[MEASURED / 2], ended[MEASURED / 2]))
}

/// An observer, and the largest term that it was shown.
struct Eyes {
    watch: Watch,
    last: Option<Token>,
}

impl Eyes {
    /// Waits until it is shown this.
    async fn until(&mut self, what: &str, is: impl Fn(Option<Token>) -> bool + Send + Sync) {
        let looking = async {
            loop {
                let seen = self.watch.next().await.expect("it goes on").expect("it is waited for");
                let token = seen.map(|leader| leader.token);
                assert!(token.is_none() || token >= self.last, "{token:?} after {:?}", self.last);
                self.last = self.last.max(token);
                if is(token) {
                    return;
                }
            }
        };
        assert!(tokio::time::timeout(PATIENCE, looking).await.is_ok(), "not within {PATIENCE:?}: {what}");
    }
}
