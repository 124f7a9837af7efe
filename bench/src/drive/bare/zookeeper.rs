//! An ephemeral node, made and deleted.

use std::sync::Arc;

use tidelock::{Name, backends::zookeeper::bare::Bare};

use super::{BareLock, Commands};
use crate::drive::{
    lease,
    library::{Failed, Library, Use},
};

#[derive(Debug)]
pub(in crate::drive) struct Zookeeper(Arc<Connection>);

#[derive(Debug)]
pub(in crate::drive) struct Connection {
    bare: Bare,
    /// Whether others are looked for first.
    lasting: bool,
}

impl Zookeeper {
    pub(in crate::drive) async fn connect(url: &str, lasting: bool) -> Result<Self, Failed> {
        // The first lock makes what is above.
        let locks = tidelock::Locks::connect(url).await.map_err(Failed::because)?;
        let above = locks.mutex("bare-above").lock().await.map_err(Failed::because)?;
        above.release().await.map_err(Failed::because)?;
        let bare = Bare::connect_for(url, lease()).await.map_err(Failed::because)?;
        Ok(Self(Arc::new(Connection { bare, lasting })))
    }
}

impl Connection {
    fn parent(&self, name: &str) -> Result<String, Failed> {
        Name::new(name).map(|name| self.bare.path(&name)).map_err(Failed::because)
    }
}

impl Library for Zookeeper {
    type Lock = BareLock<Connection>;

    async fn lock(&self, name: &str, wanted: Use) -> Result<BareLock<Connection>, Failed> {
        if wanted != Use::Alone {
            return Err(Failed::NoSuchThing);
        }
        // The server removes it when it was empty for a while.
        self.0.bare.create_container(&self.0.parent(name)?).await.map_err(Failed::because)?;
        Ok(BareLock::new(&self.0, name))
    }

    async fn trip(&self, name: &str) -> Result<(), Failed> {
        let parent = self.0.parent(name)?;
        // Made anew when it is not there: a look would be a trip of its own.
        if self.0.bare.create(&format!("{parent}/node-")).await.is_err() {
            self.0.bare.create_container(&parent).await.map_err(Failed::because)?;
        }
        Ok(())
    }
}

impl Commands for Connection {
    type Held = String;

    async fn take(&self, name: &str) -> Result<Option<String>, Failed> {
        let parent = self.parent(name)?;
        if self.lasting && !self.bare.children(&parent).await.map_err(Failed::because)?.is_empty() {
            return Ok(None);
        }
        self.bare.create(&format!("{parent}/node-")).await.map(Some).map_err(Failed::because)
    }

    async fn give_back(&self, _: &str, node: String) -> Result<(), Failed> {
        self.bare.delete(&node).await.map_err(Failed::because)
    }

    /// Whether the node above is gone, which is as much work for the server as any other look.
    async fn is_free(&self, name: &str) -> Result<bool, Failed> {
        let there = self.bare.exists(&self.parent(name)?).await.map_err(Failed::because)?;
        Ok(!there)
    }
}
