//! The stream of changes: one per open page, all of them from one watch of the store.

use std::{sync::Arc, time::Duration};

use hyper::body::Bytes;
use serde_json::json;
use tokio::time::sleep;

use super::{
    super::{Server, Stage, answer, asked::Asked, limits::Permit, lines},
    Answer, Problem, frame,
};
use crate::{clock::Moment, observe::Subscription};

/// How often the server shows that it is there.
const BEAT: Duration = Duration::from_secs(2);

/// `GET /ui/events`.
pub(super) fn open(asked: &Asked, server: &Arc<Server>) -> Result<Answer, Problem> {
    let permit = server.limits.stream(asked.peer.client)?;
    // One that does not read in time gets later what is true then, and no backlog.
    let (lines, of_page) = lines::channel(1);
    let viewer = server.observer.subscribe();
    let closing = server.closing.clone();
    server.connections.spawn(async move {
        let mut closing = closing;
        tokio::select! {
            () = feed(viewer, &lines, permit) => {}
            () = lines.closed() => {}
            _ = closing.wait_for(Stage::is_ending) => {}
        }
    });
    Ok(answer::events(of_page))
}

/// Sends what is new until the page is closed.
async fn feed(mut viewer: Subscription, lines: &lines::Sender, _permit: Permit) {
    let hello = json!({"viewer": viewer.viewer(), "version": env!("CARGO_PKG_VERSION")});
    let hello = Bytes::from(["retry: 500\n\n".as_bytes(), &frame::event("hello", &hello)].concat());
    let mut sent = lines.send(hello).await;
    while sent.is_ok() {
        let next = tokio::select! {
            news = viewer.next() => frame::news(&news),
            () = sleep(BEAT) => frame::beat(Moment::now(), &viewer.observer().health()),
        };
        sent = lines.send(next).await;
    }
}
