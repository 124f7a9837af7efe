//! What goes back: JSON, or a stream of lines.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{
    Response, StatusCode,
    body::{Body, Bytes, Frame, SizeHint},
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use serde::Serialize;

use super::lines::Receiver;

/// The answer to a request.
pub(super) type Answer = Response<Content>;

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Content {
    Whole(Option<Bytes>),
    /// Lines as they come. Dropped with its connection, which the task that sends them notices.
    Lines(Receiver),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Lines(lines) => lines.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Lines(_) => SizeHint::default(),
        }
    }
}

/// A value, as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut text = to_bytes(value);
    text.push(b'\n');
    answer(status, "application/json", Content::Whole(Some(text.into())))
}

/// A value, as JSON, for a call that succeeded.
pub(super) fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, value)
}

/// A text of this kind.
pub(super) fn text(kind: &'static str, text: String) -> Answer {
    answer(StatusCode::OK, kind, Content::Whole(Some(text.into())))
}

/// A stream of lines, each a JSON value.
pub(super) fn lines(lines: Receiver) -> Answer {
    answer(StatusCode::OK, "application/x-ndjson", Content::Lines(lines))
}

/// Bytes of this kind.
pub(super) fn file(kind: &'static str, bytes: impl Into<Bytes>) -> Answer {
    answer(StatusCode::OK, kind, Content::Whole(Some(bytes.into())))
}

/// A stream of events, for a browser.
pub(super) fn events(events: Receiver) -> Answer {
    answer(StatusCode::OK, "text/event-stream", Content::Lines(events))
}

/// One line of a stream.
pub(super) fn line(value: &impl Serialize) -> Bytes {
    let mut text = to_bytes(value);
    text.push(b'\n');
    text.into()
}

fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    // The values here have text as their keys and nothing that fails.
    serde_json::to_vec(value).unwrap_or_default()
}

fn answer(status: StatusCode, kind: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
