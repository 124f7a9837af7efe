//! A put and a delete.

use std::sync::Arc;

use tidelock::backends::etcd::bare::Bare;

use super::{BareLock, Commands};
use crate::drive::{
    lease,
    library::{Failed, Library, Use},
};

#[derive(Debug)]
pub(in crate::drive) struct Etcd(Arc<Connection>);

#[derive(Debug)]
pub(in crate::drive) struct Connection {
    bare: Bare,
    /// The lease of what is to outlast a turn; others need none.
    lease: i64,
}

impl Etcd {
    pub(in crate::drive) async fn connect(url: &str, lasting: bool) -> Result<Self, Failed> {
        let bare = Bare::connect(url).await.map_err(Failed::because)?;
        let lease = if lasting { bare.grant(lease()).await.map_err(Failed::because)? } else { 0 };
        Ok(Self(Arc::new(Connection { bare, lease })))
    }
}

impl Library for Etcd {
    type Lock = BareLock<Connection>;

    async fn lock(&self, name: &str, wanted: Use) -> Result<BareLock<Connection>, Failed> {
        if wanted == Use::Alone { Ok(BareLock::new(&self.0, name)) } else { Err(Failed::NoSuchThing) }
    }

    /// One lease for all.
    async fn renew(&self, _: &[String]) -> Result<(), Failed> {
        self.0.bare.keep_alive(self.0.lease).await.map_err(Failed::because)
    }

    async fn trip(&self, name: &str) -> Result<(), Failed> {
        self.0.bare.put(name, 0).await.map_err(Failed::because)
    }
}

impl Commands for Connection {
    type Held = ();

    /// A put asks nobody: where somebody else may have it, it is looked for first.
    async fn take(&self, name: &str) -> Result<Option<()>, Failed> {
        if self.lease != 0 && !self.is_free(name).await? {
            return Ok(None);
        }
        self.bare.put(name, self.lease).await.map(Some).map_err(Failed::because)
    }

    async fn give_back(&self, name: &str, (): ()) -> Result<(), Failed> {
        self.bare.delete(name).await.map_err(Failed::because)
    }

    async fn is_free(&self, name: &str) -> Result<bool, Failed> {
        self.bare.exists(name).await.map(|there| !there).map_err(Failed::because)
    }
}
