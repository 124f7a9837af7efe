//! What servers tell unasked: what happened to claims of this client, and that some of it may have been missed.

use std::{
    future::poll_fn,
    sync::Weak,
    task::{Context, Poll},
};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{codec, link::Server};
use crate::{
    backend::{Failure, News},
    backends::shared::failures::no_more_news,
};

/// Where the connections of a client put what their servers tell. A failure says that pushes may have been missed.
pub(crate) type Tell = UnboundedSender<Result<News, Failure>>;

/// What servers told and nobody has read yet.
#[derive(Debug)]
pub(crate) struct Wake(UnboundedReceiver<Result<News, Failure>>);

impl Wake {
    pub(crate) fn new() -> (Tell, Self) {
        let (tell, told) = unbounded_channel();
        (tell, Self(told))
    }

    /// The next news, or why some may have been missed.
    pub(crate) async fn next(&mut self) -> Result<News, Failure> {
        poll_fn(|context| self.poll(context)).await
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<News, Failure>> {
        let told = self.0.poll_recv(context);
        told.map(|told| told.unwrap_or_else(|| Err(no_more_news())))
    }
}

/// Reads a push that came on a connection of a server.
pub(super) fn hear(server: &Weak<Server>, number: u64, push: &PushInfo) {
    let Some(server) = server.upgrade() else { return };
    match push.kind {
        PushKind::Message | PushKind::SMessage => {
            let Some(Value::BulkString(message)) = push.data.get(1) else { return };
            if let Some(news) = codec::news(&server.common().space, message) {
                // Nobody reads it any more only when the client is gone.
                let _ = server.common().tell.send(Ok(news));
            }
        }
        PushKind::Disconnection => server.cut(number, "the connection was lost"),
        // A slot went to another server: what was heard here is heard there from now on. This client never
        // unsubscribes, so it is the answer to nothing.
        PushKind::SUnsubscribe | PushKind::PUnsubscribe | PushKind::Unsubscribe => {
            server.goes_astray(number, "a slot was moved to another server");
        }
        _ => {}
    }
}
