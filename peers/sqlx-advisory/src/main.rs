//! sqlx: `PgAdvisoryLock`, on connections of a pool as its documentation shows; with `SQLX_POOL=off` each task has a
//! connection of its own.

use driver::{Answer, AnyLock, Library, Lock};
use sqlx::{
    Connection, PgConnection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgAdvisoryLock, PgAdvisoryLockGuard},
};
use tokio::sync::Mutex;

mod driver;

struct Sqlx {
    pool: PgPool,
    /// Where the connections of tasks lead that have their own, and the one of the client that tries.
    own: Option<(String, Mutex<PgConnection>)>,
}

struct Pooled {
    pool: PgPool,
    lock: PgAdvisoryLock,
    held: Option<PgAdvisoryLockGuard<PoolConnection<Postgres>>>,
}

impl Lock for Pooled {
    async fn lock(&mut self) -> Answer {
        self.held = Some(self.lock.acquire(self.pool.acquire().await?).await?);
        Ok(())
    }

    async fn unlock(&mut self) -> Answer {
        if let Some(guard) = self.held.take() {
            guard.release_now().await?;
        }
        Ok(())
    }
}

struct Own {
    connection: Option<PgConnection>,
    lock: PgAdvisoryLock,
    held: Option<PgAdvisoryLockGuard<PgConnection>>,
}

impl Lock for Own {
    async fn lock(&mut self) -> Answer {
        let connection = self.connection.take().ok_or("the connection is gone")?;
        self.held = Some(self.lock.acquire(connection).await?);
        Ok(())
    }

    async fn unlock(&mut self) -> Answer {
        if let Some(guard) = self.held.take() {
            self.connection = Some(guard.release_now().await?);
        }
        Ok(())
    }
}

impl Library for Sqlx {
    async fn connect(servers: &str) -> Answer<Self> {
        let own = if std::env::var("SQLX_POOL").is_ok_and(|pool| pool == "off") {
            Some((servers.to_owned(), Mutex::new(PgConnection::connect(servers).await?)))
        } else {
            None
        };
        Ok(Self { pool: PgPool::connect_lazy(servers)?, own })
    }

    async fn lock(&self, name: &str) -> Answer<Box<dyn AnyLock>> {
        let lock = PgAdvisoryLock::new(name);
        Ok(match &self.own {
            Some((url, _)) => {
                Box::new(Own { connection: Some(PgConnection::connect(url).await?), lock, held: None })
            }
            None => Box::new(Pooled { pool: self.pool.clone(), lock, held: None }),
        })
    }

    async fn attempt(&self, name: &str) -> Answer<bool> {
        let lock = PgAdvisoryLock::new(name);
        Ok(match &self.own {
            Some((_, own)) => lock.try_acquire(&mut *own.lock().await).await?.is_left(),
            None => lock.try_acquire(self.pool.acquire().await?).await?.is_left(),
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    driver::main::<Sqlx>().await
}
