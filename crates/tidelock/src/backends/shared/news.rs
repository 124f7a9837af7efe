//! News on their way from the connections of a client to its wake.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::failures::no_more_news;
use crate::backend::{Failure, News};

/// Where connections put what their servers tell. A failure says that news may have been missed.
pub(crate) type Tell = UnboundedSender<Result<News, Failure>>;

/// What servers told and nobody has read yet.
#[derive(Debug)]
pub(crate) struct Told(UnboundedReceiver<Result<News, Failure>>);

/// Both ends.
pub(crate) fn channel() -> (Tell, Told) {
    let (tell, told) = unbounded_channel();
    (tell, Told(told))
}

impl Told {
    /// The next news, or why some may have been missed.
    pub(crate) async fn next(&mut self) -> Result<News, Failure> {
        self.0.recv().await.unwrap_or_else(|| Err(no_more_news()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wake_whose_connections_are_gone_fails_instead_of_waiting_forever() {
        let (tell, mut told) = channel();
        tell.send(Err(Failure::unreachable("cut"))).unwrap();
        drop(tell);
        assert_eq!(&*told.next().await.unwrap_err().reason, "cut");
        assert_eq!(told.next().await.unwrap_err().reason, no_more_news().reason);
    }
}
