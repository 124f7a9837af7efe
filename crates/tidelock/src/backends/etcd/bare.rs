//! What locks are measured against: puts and deletes by the same client, which exclude nobody.

use std::time::Duration;

use super::{
    EtcdConfig,
    link::{Link, Missed},
    proto::{DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest},
};
use crate::{backend::Failure, backends::shared::units::natural_or_most, error::Error};

/// A client without locks.
#[derive(Debug)]
pub struct Bare(Link);

impl Bare {
    /// Connects to the servers of a URL.
    ///
    /// # Errors
    /// As [`Locks::connect`](crate::Locks::connect).
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let failed = |failure: Failure| Error::failure("etcd", None, &failure);
        let link = Link::new(&EtcdConfig::from_url(url)?.settings().map_err(failed)?).map_err(failed)?;
        link.connection().await.map_err(failed)?;
        Ok(Self(link))
    }

    /// Writes a key, with a lease or with none (0).
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn put(&self, key: &str, lease: i64) -> Result<(), Failure> {
        let put = PutRequest { key: key.into(), value: b"bare".to_vec(), lease, ..PutRequest::default() };
        self.0.ask(put).await?;
        Ok(())
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete(&self, key: &str) -> Result<(), Failure> {
        self.0.ask(DeleteRangeRequest { key: key.into() }).await?;
        Ok(())
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn exists(&self, key: &str) -> Result<bool, Failure> {
        let answered = self.0.ask(RangeRequest { key: key.into(), ..RangeRequest::default() }).await?;
        Ok(!answered.answer.kvs.is_empty())
    }

    /// A new lease.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, Failure> {
        Ok(self.0.ask(LeaseGrantRequest { ttl: natural_or_most(ttl.as_secs()) }).await?.answer.id)
    }

    /// Renews a lease.
    ///
    /// # Errors
    /// When the store does not answer, or the lease is over.
    pub async fn keep_alive(&self, lease: i64) -> Result<(), Failure> {
        match self.0.keep_alive(lease).await {
            Ok(_) => Ok(()),
            Err(Missed::Lease) => Err(Failure::denied("the lease is over")),
            Err(missed) => Err(missed.into()),
        }
    }
}
