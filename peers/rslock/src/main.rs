//! rslock, on one server or several that vote.

use driver::{Answer, AnyLock, Library, Lock, lease};
use rslock::{LockError, LockGuard, LockManager};
use tokio::{sync::oneshot, task::JoinHandle};

mod driver;

struct Rslock(LockManager);

/// Asks until it has the lock: the library retries, and begins again after three tries.
struct Plain {
    manager: LockManager,
    name: String,
    held: Option<LockGuard>,
}

impl Lock for Plain {
    async fn lock(&mut self) -> Answer {
        self.held = Some(self.manager.acquire(self.name.as_str(), lease()).await?);
        Ok(())
    }

    async fn unlock(&mut self) -> Answer {
        if let Some(guard) = self.held.take() {
            guard.release().await;
        }
        Ok(())
    }
}

type Holding = JoinHandle<Result<(), LockError>>;

/// `using`: renews as long as its routine runs.
struct Renewed {
    manager: LockManager,
    name: String,
    held: Option<(oneshot::Sender<()>, Holding)>,
}

impl Lock for Renewed {
    async fn lock(&mut self) -> Answer {
        let ((has, had), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let (manager, name) = (self.manager.clone(), self.name.clone());
        let holding = tokio::spawn(async move {
            let routine = async || {
                let _ = has.send(());
                let _ = ended.await;
            };
            manager.using(name.as_bytes(), lease(), routine).await
        });
        had.await?;
        self.held = Some((end, holding));
        Ok(())
    }

    async fn unlock(&mut self) -> Answer {
        if let Some((end, holding)) = self.held.take() {
            let _ = end.send(());
            holding.await??;
        }
        Ok(())
    }
}

impl Library for Rslock {
    async fn connect(servers: &str) -> Answer<Self> {
        Ok(Self(LockManager::new(servers.split(',').map(|server| format!("redis://{server}")).collect())))
    }

    async fn lock(&self, name: &str) -> Answer<Box<dyn AnyLock>> {
        Ok(Box::new(Plain { manager: self.0.clone(), name: name.to_owned(), held: None }))
    }

    async fn kept(&self, name: &str) -> Answer<Box<dyn AnyLock>> {
        Ok(Box::new(Renewed { manager: self.0.clone(), name: name.to_owned(), held: None }))
    }

    async fn attempt(&self, name: &str) -> Answer<bool> {
        let mut once = self.0.clone();
        once.set_retry(1, std::time::Duration::from_millis(1));
        match once.lock(name, lease()).await {
            Ok(_) => Ok(true),
            Err(LockError::Unavailable) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    driver::main::<Rslock>().await
}
