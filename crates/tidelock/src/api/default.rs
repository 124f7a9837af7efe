//! The client of functions with `#[locked]` that are given none.

use std::sync::{PoisonError, RwLock};

use crate::{
    api::{client::Locks, once::Outcome},
    error::{Error, Result},
};

static DEFAULT: RwLock<Option<Locks>> = RwLock::new(None);

/// Sets the client for functions with [`locked`](macro@crate::locked) that have no client of their own.
///
/// The last one that is set counts, for the whole process and for functions without async, too. It stays until the
/// process ends, so call [`Locks::shutdown`] where `main` ends: what is still held is released then.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Locks, locked};
///
/// #[locked("prices")]
/// async fn update() -> tidelock::Result<u32> {
///     Ok(17)
/// }
///
/// let locks = Locks::connect("memory:").await?;
/// tidelock::set_default(&locks);
/// assert_eq!(update().await?, 17);
/// locks.shutdown(std::time::Duration::from_secs(5)).await;
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
pub fn set_default(locks: &Locks) {
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(locks.clone());
}

/// Returns the client that was given to [`set_default`].
///
/// # Errors
/// [`InvalidOption`](crate::ErrorKind::InvalidOption) if there is none.
///
/// ```
/// assert!(tidelock::default_locks().unwrap_err().to_string().contains("set_default"));
/// ```
pub fn default_locks() -> Result<Locks> {
    let locks = DEFAULT.read().unwrap_or_else(PoisonError::into_inner);
    locks.clone().ok_or_else(|| {
        Error::invalid_option(
            "there is no default client: call tidelock::set_default first, or give the function an argument of type Locks",
        )
    })
}

/// Makes one outcome of that of a function and that of the slot it ran in.
pub fn flatten<T>(outcome: Outcome<Outcome<T>>) -> Outcome<T> {
    match outcome {
        Outcome::Ran(inner) => inner,
        Outcome::Done(done) => Outcome::Done(done),
        Outcome::Running(running) => Outcome::Running(running),
    }
}
