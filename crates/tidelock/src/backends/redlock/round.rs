//! Asking all servers at once, and waiting for as few of them as will do.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use super::link::Link;
use crate::backend::{Failure, News};

/// A question to one server, under way.
pub(super) type Asked<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// What is left to be done when the answer is not awaited any more. It may have something to tell.
pub(super) type Later = Pin<Box<dyn Future<Output = Option<News>> + Send>>;

/// What came of a question.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Here(Result<T, Failure>),
    Awaited,
    /// Nobody waits for it.
    Late,
}

/// The answers, and the questions that are still under way, with the number of their server.
pub(super) struct Round<T> {
    pub(super) answers: Vec<Answer<T>>,
    pub(super) unfinished: Vec<(usize, Asked<T>)>,
}

/// Asks, until the answers suffice or the time is over. A server that was late before is asked, and not waited for. A question
/// is told the number of its server.
pub(super) async fn ask<T: Send>(
    voters: &[Arc<Link>],
    question: impl Fn(usize, &Arc<Link>) -> Asked<T> + Send,
    limit: Duration,
    mut suffices: impl FnMut(&[Answer<T>]) -> bool + Send,
) -> Round<T> {
    let mut asked: Vec<_> =
        voters.iter().enumerate().map(|(server, voter)| Some(question(server, voter))).collect();
    let mut answers: Vec<_> =
        voters.iter().map(|voter| if voter.is_late() { Answer::Late } else { Answer::Awaited }).collect();
    {
        let mut limit = pin!(tokio::time::sleep(limit));
        poll_fn(|context| {
            let mut is_news = false;
            for (index, slot) in asked.iter_mut().enumerate() {
                let Some(question) = slot else { continue };
                if let Poll::Ready(answer) = question.as_mut().poll(context) {
                    *slot = None;
                    if answer.is_ok() {
                        voters[index].note_answer();
                    }
                    answers[index] = Answer::Here(answer);
                    is_news = true;
                }
            }
            if is_news && suffices(&answers) {
                return Poll::Ready(());
            }
            if limit.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            for (index, answer) in answers.iter_mut().enumerate() {
                if matches!(answer, Answer::Awaited) {
                    voters[index].note_late();
                    *answer = Answer::Late;
                }
            }
            Poll::Ready(())
        })
        .await;
    }
    let unfinished = asked.into_iter().enumerate().filter_map(|(index, slot)| Some((index, slot?))).collect();
    Round { answers, unfinished }
}
