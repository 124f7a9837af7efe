//! All names, followed: servers tell of every node that is made, written or deleted below the root.
//!
//! It is one watch that stays, on a session of its own, which is there while somebody follows: what is told there moves
//! no claim. Servers know such watches from version 3.6 on. Renewals write nothing, so only those who come and go are
//! told. Why a claim was put out is in the data of its lock's node; it is read when those are written.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{
    codec::{nodes::Contender, paths},
    errors::{UNIMPLEMENTED, ZkError},
    link::{
        session::{Session, Watcher},
        wire::{self, Change, Request, Stat},
    },
    store::ZookeeperStore,
    wake::notice::Notice,
};
use crate::{DEFAULT_TTL, backend::TellAll};

/// After how long it is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// After how long a server that does not know such watches is asked again: it may be a newer one by then.
const OLD: Duration = Duration::from_secs(60);

/// Passes on what a session hears.
struct All {
    told: TellAll,
    root: String,
    /// The node of the base of epochs, which is no lock.
    epochs: String,
    /// The connection was lost, or the session is over.
    cut: Notify,
    is_over: AtomicBool,
    /// Lock nodes whose data were written.
    written: UnboundedSender<String>,
}

impl Watcher for All {
    fn watched(&self, _session: u64, _path: &str, _found: Option<Stat>, _connection: u64) {}

    fn changed(&self, _session: u64, change: Change, path: &str) {
        if path == self.epochs {
            return;
        }
        let (parent, node) = path.rsplit_once('/').unwrap_or_default();
        let lock = if Contender::read(node).is_some() { parent } else { path };
        let Some(name) = paths::name(&self.root, lock) else { return };
        if lock == path && change == Change::Other {
            // Nobody reads it only when nobody follows any more.
            let _ = self.written.send(path.to_owned());
        }
        self.told.changed(name);
    }

    fn cut(&self, _session: u64) {
        self.cut.notify_one();
    }

    fn resumed(&self, _session: u64) {
        self.cut.notify_one();
    }

    fn expired(&self, _session: u64) {
        self.is_over.store(true, Ordering::Release);
        self.cut.notify_one();
    }
}

impl ZookeeperStore {
    /// Listens to the ensemble, again whenever the connection is lost.
    pub(super) async fn hear_all(self: Arc<Self>, told: TellAll) -> Infallible {
        loop {
            let (written, to_read) = unbounded_channel();
            let all = Arc::new(All {
                told: told.clone(),
                root: self.config.root.clone(),
                epochs: self.epochs.path.clone(),
                cut: Notify::new(),
                is_over: AtomicBool::new(false),
                written,
            });
            let session = self.link.another_session(DEFAULT_TTL, Arc::clone(&all) as Arc<dyn Watcher>);
            tokio::select! {
                () = listen(&session, &all) => {}
                never = read_reasons(&session, to_read, &told) => match never {},
            }
        }
    }
}

/// Has the session watch everything, again after each loss of its connection, until it is over.
async fn listen(session: &Session, all: &All) {
    while !all.is_over.load(Ordering::Acquire) {
        let pause = match session.ask(Request::watch_below(&all.root)).await {
            Ok(_) => {
                // If the connection was lost since it answered, that is noted and read next.
                all.told.live();
                all.cut.notified().await;
                Duration::ZERO
            }
            Err(ZkError::Code(UNIMPLEMENTED)) => OLD,
            Err(_) => AGAIN,
        };
        all.told.cut();
        tokio::time::sleep(pause).await;
    }
}

/// Reads why claims were put out, of locks whose data were written.
async fn read_reasons(
    session: &Session,
    mut written: UnboundedReceiver<String>,
    told: &TellAll,
) -> Infallible {
    while let Some(path) = written.recv().await {
        // A lock that is gone by now, or a connection: nobody knows the reason.
        let Ok(answer) = session.ask(Request::get_data(&path, false)).await else { continue };
        let Ok((data, _)) = wire::data(&answer) else { continue };
        for (claim, reason) in Notice::read(&data).iter().flat_map(Notice::all) {
            told.evicted(claim, reason.into());
        }
    }
    std::future::pending().await
}
