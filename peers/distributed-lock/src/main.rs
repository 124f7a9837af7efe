//! The crates of distributed-lock: the scheme of the URL says which store.

use std::time::Duration;

use distributed_lock_core::prelude::*;
use distributed_lock_file::FileLockProvider;
use distributed_lock_mysql::MySqlLockProvider;
use distributed_lock_postgres::PostgresLockProvider;
use distributed_lock_redis::RedisLockProvider;
use driver::{Answer, AnyLock, Library, Lock, Missing, lease};

mod driver;

/// On Redis `acquire` gives up at once, whatever its time-out: a waiter asks again after this long.
const PAUSE: Duration = Duration::from_millis(50);
/// On MariaDB `acquire` fails if it may wait for ever: after this long it is asked again.
const LONG: Duration = Duration::from_secs(10);

enum Store {
    Redis(RedisLockProvider),
    Postgres(PostgresLockProvider),
    MySql(MySqlLockProvider),
    File(FileLockProvider),
}

/// How a lock is asked for.
#[derive(Clone, Copy)]
struct Manner {
    timeout: Option<Duration>,
    pause: Duration,
}

/// What asks for a lock, and what is held.
struct Of<L, H> {
    lock: L,
    manner: Manner,
    held: Option<H>,
}

struct Plain<L: DistributedLock>(Of<L, L::Handle>);
struct Read<L: DistributedReaderWriterLock>(Of<L, L::ReadHandle>);
struct Write<L: DistributedReaderWriterLock>(Of<L, L::WriteHandle>);

impl<L, H: LockHandle> Of<L, H> {
    fn new(lock: L, manner: Manner) -> Self {
        Self { lock, manner, held: None }
    }

    /// After a time-out, asks again: false.
    async fn keep(&mut self, asked: LockResult<H>) -> Answer<bool> {
        match asked {
            Err(LockError::Timeout(_)) => tokio::time::sleep(self.manner.pause).await,
            held => self.held = Some(held?),
        }
        Ok(self.held.is_some())
    }

    async fn release(&mut self) -> Answer {
        if let Some(handle) = self.held.take() {
            handle.release().await?;
        }
        Ok(())
    }
}

macro_rules! lock {
    ($kind:ident, $needs:ident, $acquire:ident) => {
        impl<L: $needs + 'static> Lock for $kind<L> {
            async fn lock(&mut self) -> Answer {
                while {
                    let asked = self.0.lock.$acquire(self.0.manner.timeout).await;
                    !self.0.keep(asked).await?
                } {}
                Ok(())
            }

            async fn unlock(&mut self) -> Answer {
                self.0.release().await
            }
        }
    };
}

lock!(Plain, DistributedLock, acquire);
lock!(Read, DistributedReaderWriterLock, acquire_read);
lock!(Write, DistributedReaderWriterLock, acquire_write);

fn plain(provider: &impl LockProvider<Lock: 'static>, name: &str, manner: Manner) -> Box<dyn AnyLock> {
    Box::new(Plain(Of::new(provider.create_lock(name), manner)))
}

fn both(
    provider: &impl ReaderWriterLockProvider<Lock: 'static>,
    name: &str,
    manner: Manner,
) -> [Box<dyn AnyLock>; 2] {
    let lock = || provider.create_reader_writer_lock(name);
    [Box::new(Read(Of::new(lock(), manner))), Box::new(Write(Of::new(lock(), manner)))]
}

async fn attempt(provider: &impl LockProvider, name: &str) -> Answer<bool> {
    Ok(provider.create_lock(name).try_acquire().await?.is_some())
}

impl Store {
    fn manner(&self) -> Manner {
        let timeout = matches!(self, Self::MySql(_)).then_some(LONG);
        let pause = if matches!(self, Self::Redis(_)) { PAUSE } else { Duration::ZERO };
        Manner { timeout, pause }
    }
}

impl Library for Store {
    async fn connect(servers: &str) -> Answer<Self> {
        Ok(match servers.split_once(':') {
            Some(("postgres", _)) => Self::Postgres(PostgresLockProvider::new(servers).await?),
            Some(("mysql", _)) => Self::MySql(MySqlLockProvider::new(servers).await?),
            Some(("file", folder)) => Self::File(FileLockProvider::new(folder)?),
            _ => {
                let urls: Vec<_> = servers.split(',').map(redis_url).collect();
                // It renews by itself. The shares of the lease are those of its defaults.
                let provider = RedisLockProvider::builder().urls(&urls).expiry(lease());
                let provider = provider.extension_cadence(lease() / 3).min_validity(lease() * 9 / 10);
                Self::Redis(provider.build().await?)
            }
        })
    }

    async fn lock(&self, name: &str) -> Answer<Box<dyn AnyLock>> {
        Ok(match self {
            Self::Redis(provider) => plain(provider, name, self.manner()),
            Self::Postgres(provider) => plain(provider, name, self.manner()),
            Self::MySql(provider) => plain(provider, name, self.manner()),
            Self::File(provider) => plain(provider, name, self.manner()),
        })
    }

    async fn attempt(&self, name: &str) -> Answer<bool> {
        match self {
            Self::Redis(provider) => attempt(provider, name).await,
            Self::Postgres(provider) => attempt(provider, name).await,
            Self::MySql(provider) => attempt(provider, name).await,
            Self::File(provider) => attempt(provider, name).await,
        }
    }

    async fn read_write(&self, name: &str) -> Answer<[Box<dyn AnyLock>; 2]> {
        Ok(match self {
            Self::Redis(provider) => both(provider, name, self.manner()),
            Self::Postgres(provider) => both(provider, name, self.manner()),
            Self::MySql(provider) => both(provider, name, self.manner()),
            Self::File(_) => return Err(Missing("read").into()),
        })
    }
}

fn redis_url(server: &str) -> String {
    if server.starts_with("redis://") { server.to_owned() } else { format!("redis://{server}") }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    driver::main::<Store>().await
}
