//! What locks are measured against: a put and a delete by the same client, which exclude nobody.

use super::{
    EtcdConfig,
    proto::{DeleteRangeRequest, PutRequest},
    servers::Servers,
};
use crate::{backend::Failure, error::Error};

/// A client without locks.
#[derive(Debug)]
pub struct Bare(Servers);

impl Bare {
    /// Connects to the servers of a URL.
    ///
    /// # Errors
    /// As [`Locks::connect`](crate::Locks::connect).
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let failed = |failure: Failure| Error::failure("etcd", None, &failure);
        let servers = Servers::new(&EtcdConfig::from_url(url)?).map_err(failed)?;
        servers.connection().await.map_err(failed)?;
        Ok(Self(servers))
    }

    /// Writes a key.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn put(&self, key: &str) -> Result<(), Failure> {
        let put = PutRequest { key: key.into(), value: b"bare".to_vec(), ..PutRequest::default() };
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
}
