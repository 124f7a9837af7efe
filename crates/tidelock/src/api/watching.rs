//! What a client tells those who watch locks: which of them changed, and what became of its own claims.

use super::client::Locks;
use crate::{backend::FollowAll, engine::Endings};

impl Locks {
    /// Tells from now on which locks may have changed, by any client; `None` if the store cannot.
    ///
    /// For programs that show all locks: they [`look`](Self::look) at what is told, and at everything only seldom.
    ///
    /// ```no_run
    /// # async fn show(view: tidelock::backend::LockView) {}
    /// # async fn example() -> tidelock::Result<()> {
    /// let locks = tidelock::Locks::connect("redis://127.0.0.1").await?;
    /// if let Some(mut all) = locks.follow_all() {
    ///     loop {
    ///         for lock in locks.look(&all.next().await.names).await? {
    ///             show(lock).await;
    ///         }
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn follow_all(&self) -> Option<FollowAll> {
        self.engine.follow_all()
    }

    /// Tells from now on what becomes of this client's claims: released, lost or evicted, and why.
    ///
    /// For programs that keep an audit trail, or that show locks: a store does not say why a claim is gone. Tasks of one
    /// process may share a claim one after another; it ends when the last of them is done with it.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// use tidelock::HowEnded;
    ///
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let mut endings = locks.endings();
    /// locks.mutex("orders/42").lock().await?.release().await?;
    /// let ended = endings.next().await.expect("the client is there");
    /// assert_eq!((ended.name.as_str(), ended.how), ("orders/42", HowEnded::Released));
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn endings(&self) -> Endings {
        self.engine.endings()
    }
}
