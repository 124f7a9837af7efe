//! Election without async.

use std::{fmt, ops::ControlFlow, time::Duration};

use super::{observe::Leader, term::Term};
use crate::{api::blocking::block_on, error::Result};

/// [`Election`](crate::Election) without async.
///
/// ```
/// let locks = tidelock::blocking::Locks::connect("memory:")?;
/// let election = locks.election("scheduler").advertise("http://10.0.0.7:8080");
/// let term = election.once(|term| term.token())?;
/// assert!(term.get() > 0);
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Election {
    pub(crate) inner: crate::Election,
}

impl Election {
    /// Sets the text that observers see while this candidate leads. See [`crate::Election::advertise`].
    #[must_use]
    pub fn advertise(self, text: impl AsRef<str>) -> Self {
        Self { inner: self.inner.advertise(text) }
    }

    /// Sets how long a leader that dies is not replaced. See [`crate::Election::ttl`].
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { inner: self.inner.ttl(ttl) }
    }

    /// Sets the label that others see for this candidate. See [`crate::Election::label`].
    #[must_use]
    pub fn label(self, label: impl AsRef<str>) -> Self {
        Self { inner: self.inner.label(label) }
    }

    /// Leads again and again until the work returns [`ControlFlow::Break`].
    ///
    /// Nothing can stop code without async, so work that takes long asks [`Term::is_leading`] before each step that
    /// matters, and returns when it no longer leads. The lead is given back when the work has returned.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// let locks = tidelock::blocking::Locks::connect("memory:")?;
    /// let mut jobs = vec!["mail", "report"];
    /// locks.election("scheduler").lead(|term| {
    ///     while term.is_leading() {
    ///         let Some(job) = jobs.pop() else { return ControlFlow::Break(()) };
    ///         println!("{job} in term {}", term.token());
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`crate::Election::lead`].
    pub fn lead(&self, mut work: impl FnMut(Term) -> ControlFlow<()>) -> Result<()> {
        loop {
            match self.once(&mut work) {
                Ok(ControlFlow::Break(())) => return Ok(()),
                Ok(ControlFlow::Continue(())) => {}
                // A candidate again.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Leads for one term: waits until this process leads, runs the work, and gives the lead back.
    ///
    /// # Errors
    /// As [`crate::Election::once`]. A loss is reported when the work has returned.
    pub fn once<T>(&self, work: impl FnOnce(Term) -> T) -> Result<T> {
        let guard = block_on(self.inner.campaign())?;
        let done = work(Term::new(guard.holding()));
        match block_on(guard.release()) {
            Err(error) if error.is_lost() => Err(error),
            // A store that does not answer ends the lease.
            _ => Ok(done),
        }
    }

    /// Returns who leads now, or `None` if nobody does. See [`crate::Election::leader`].
    ///
    /// # Errors
    /// As [`crate::Election::leader`].
    pub fn leader(&self) -> Result<Option<Leader>> {
        block_on(self.inner.leader())
    }

    /// Returns an iterator of who leads: first the leader of now, then each change. See [`crate::Election::watch`].
    ///
    /// ```
    /// let locks = tidelock::blocking::Locks::connect("memory:")?;
    /// let mut watch = locks.election("scheduler").watch();
    /// assert_eq!(watch.next().unwrap()?, None);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn watch(&self) -> Watch {
        Watch { inner: self.inner.watch() }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// [`Watch`](crate::Watch) without async: an iterator that blocks until something changes.
#[derive(Debug)]
pub struct Watch {
    inner: crate::Watch,
}

impl Iterator for Watch {
    type Item = Result<Option<Leader>>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(async { Ok(self.inner.next().await) }).unwrap_or_else(|error| Some(Err(error)))
    }
}
