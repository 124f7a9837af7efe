//! zookeeper-client: its lock recipe with Curator's names, under one session.

use driver::{Answer, AnyLock, Library, Lock, lease};
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

mod driver;

struct Session(Client);

struct Recipe {
    client: Client,
    folder: String,
    held: Option<OwnedLockClient>,
}

impl Lock for Recipe {
    async fn lock(&mut self) -> Answer {
        let prefix = LockPrefix::new_curator(&self.folder, "lock-")?;
        let ancestors = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(ancestors)?;
        self.held = Some(self.client.lock(prefix, b"", options).await?.into_owned());
        Ok(())
    }

    async fn unlock(&mut self) -> Answer {
        // There is no other way: dropping it does not wait for the server.
        self.held = None;
        Ok(())
    }
}

impl Library for Session {
    async fn connect(servers: &str) -> Answer<Self> {
        Ok(Self(Client::connector().with_session_timeout(lease()).connect(servers).await?))
    }

    async fn lock(&self, name: &str) -> Answer<Box<dyn AnyLock>> {
        Ok(Box::new(Recipe { client: self.0.clone(), folder: format!("/{name}"), held: None }))
    }

    async fn close(self) {
        let mut states = self.0.state_watcher();
        drop(self);
        while !states.changed().await.is_terminated() {}
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    driver::main::<Session>().await
}
