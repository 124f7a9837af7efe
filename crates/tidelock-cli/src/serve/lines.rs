//! The lines of a stream on their way from its task to its connection.
//!
//! A stream waits for most of its life, and a server has thousands of them: a channel takes up a few bytes until it has
//! lines, where one of tokio has room for 32 from the beginning.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use hyper::body::Bytes;

/// The end of one task, which sends.
#[derive(Debug)]
pub(super) struct Sender(Arc<Shared>);

/// The end of the connection. Dropped with it, which the task notices.
#[derive(Debug)]
pub(super) struct Receiver(Arc<Shared>);

/// The connection is gone.
#[derive(Debug)]
pub(super) struct Closed;

#[derive(Debug)]
struct Shared {
    /// How many lines may wait.
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Bytes>,
    /// Whether no more lines come.
    ended: bool,
    /// Whether nobody takes them.
    closed: bool,
    /// Of the task that sends, while it waits for the end of the connection or for room.
    sender: Option<Waker>,
    needs_room: bool,
    receiver: Option<Waker>,
}

/// The two ends of a stream with room for this many lines.
pub(super) fn channel(most: usize) -> (Sender, Receiver) {
    let shared = Arc::new(Shared { most, state: Mutex::default() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one of the two, after the lock is free.
fn wake(mut state: MutexGuard<'_, State>, which: impl FnOnce(&mut State) -> &mut Option<Waker>) {
    let waker = which(&mut state).take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Remembers whom to wake.
fn keep(place: &mut Option<Waker>, context: &Context<'_>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *place = Some(context.waker().clone());
    }
}

impl Sender {
    /// Sends a line if there is room, and gives it back otherwise.
    pub(super) fn offer(&self, line: Bytes) -> Result<Option<Bytes>, Closed> {
        let mut state = self.0.state();
        if state.closed {
            return Err(Closed);
        }
        if state.lines.len() >= self.0.most {
            return Ok(Some(line));
        }
        state.lines.push_back(line);
        wake(state, |state| &mut state.receiver);
        Ok(None)
    }

    /// Sends a line when there is room. If it is dropped before, the line is not sent.
    pub(super) async fn send(&self, line: Bytes) -> Result<(), Closed> {
        let Some(line) = self.offer(line)? else { return Ok(()) };
        poll_fn(|context| {
            let mut state = self.0.state();
            if state.closed || state.lines.len() < self.0.most {
                return Poll::Ready(());
            }
            state.needs_room = true;
            keep(&mut state.sender, context);
            Poll::Pending
        })
        .await;
        // Nobody else sends.
        self.offer(line).map(drop)
    }

    /// Resolves when the connection is gone. Cancel safe.
    pub(super) async fn closed(&self) {
        poll_fn(|context| {
            let mut state = self.0.state();
            if state.closed {
                return Poll::Ready(());
            }
            keep(&mut state.sender, context);
            Poll::Pending
        })
        .await;
    }

    /// Ends the stream behind the lines that were sent.
    pub(super) fn end(&self) {
        let mut state = self.0.state();
        state.ended = true;
        wake(state, |state| &mut state.receiver);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end();
    }
}

impl Receiver {
    pub(super) fn poll_recv(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.state();
        if let Some(line) = state.lines.pop_front() {
            // A task that waits for the end only is left alone.
            if std::mem::take(&mut state.needs_room) {
                wake(state, |state| &mut state.sender);
            }
            return Poll::Ready(Some(line));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        keep(&mut state.receiver, context);
        Poll::Pending
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        state.lines = VecDeque::new();
        wake(state, |state| &mut state.sender);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn receive(receiver: &mut Receiver) -> Poll<Option<Bytes>> {
        receiver.poll_recv(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn lines_come_in_order_and_then_the_end() {
        let (sender, mut receiver) = channel(2);
        assert_eq!(receive(&mut receiver), Poll::Pending);
        assert_eq!(sender.offer("a".into()).unwrap(), None);
        assert_eq!(sender.offer("b".into()).unwrap(), None);
        assert_eq!(sender.offer("c".into()).unwrap(), Some("c".into()), "there is no room");
        drop(sender);
        assert_eq!(receive(&mut receiver), Poll::Ready(Some("a".into())));
        assert_eq!(receive(&mut receiver), Poll::Ready(Some("b".into())));
        assert_eq!(receive(&mut receiver), Poll::Ready(None));
    }

    #[test]
    fn a_line_waits_for_room() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(sender.offer("a".into()).unwrap(), None);
        let mut sent = pin!(sender.send("b".into()));
        assert!(poll(sent.as_mut()).is_pending());
        assert_eq!(receive(&mut receiver), Poll::Ready(Some("a".into())));
        assert!(matches!(poll(sent.as_mut()), Poll::Ready(Ok(()))));
        assert_eq!(receive(&mut receiver), Poll::Ready(Some("b".into())));
    }

    #[test]
    fn a_connection_that_is_gone_is_noticed() {
        let (sender, receiver) = channel(1);
        assert_eq!(sender.offer("a".into()).unwrap(), None);
        let mut closed = pin!(sender.closed());
        assert!(poll(closed.as_mut()).is_pending());
        {
            let mut sent = pin!(sender.send("b".into()));
            assert!(poll(sent.as_mut()).is_pending());
            drop(receiver);
            assert!(matches!(poll(sent.as_mut()), Poll::Ready(Err(Closed))));
        }
        assert!(poll(closed.as_mut()).is_ready());
        assert!(sender.offer("c".into()).is_err());
    }
}
