//! tidelock.

use std::{collections::HashMap, sync::Mutex as StdMutex, time::Duration};

use tidelock::{
    Election, Guard, Locks, Mutex, RwLock,
    stock::{Sale, Stock, Stocks},
    testing::Clock,
};

use super::{
    lease,
    library::{Failed, Library, Lock, Use},
};

/// More than anybody buys.
const ENOUGH: u64 = 1_000_000_000;
const SEGMENTS: u32 = 8;
/// How often a candidate of client-go asks: each time up to 1.2 times longer than this.
const RETRY: Duration = Duration::from_secs(2);

/// One client.
#[derive(Debug)]
pub(super) struct Ours {
    url: String,
    locks: Locks,
    stocks: StdMutex<HashMap<String, Stock>>,
}

impl Ours {
    pub(super) async fn connect(url: &str) -> Result<Self, Failed> {
        let locks = Locks::connect(url).await.map_err(Failed::because)?;
        // Servers that vote have none until they are up for the longest lease.
        while locks.concerns().iter().any(|concern| concern.contains("has no vote")) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Self { url: url.to_owned(), locks, stocks: StdMutex::default() })
    }

    fn stock(&self, name: &str) -> Option<Stock> {
        self.stocks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(name).cloned()
    }
}

#[derive(Debug)]
pub(super) enum Handle {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Election(Election),
    Polled(Polled),
}

impl Library for Ours {
    type Lock = Handle;

    async fn lock(&self, name: &str, wanted: Use) -> Result<Handle, Failed> {
        Ok(match wanted {
            Use::Alone => Handle::Mutex(self.locks.mutex(name).ttl(lease())),
            Use::Read => Handle::Read(self.locks.rw_lock(name).ttl(lease())),
            Use::Write => Handle::Write(self.locks.rw_lock(name).ttl(lease())),
            Use::Lead => Handle::Election(self.locks.election(name).ttl(lease())),
            Use::Poll => Handle::Polled(Polled { mutex: self.locks.mutex(name).ttl(lease()), led: false }),
        })
    }

    async fn open(&self, name: &str) -> Result<(), Failed> {
        let stocks = Stocks::connect(&self.url).await.map_err(Failed::because)?;
        let stock = stocks.open(name, ENOUGH).segments(SEGMENTS).await.map_err(Failed::because)?;
        self.stocks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(name.to_owned(), stock);
        Ok(())
    }

    async fn sell(&self, name: &str, order: u64) -> Result<(), Failed> {
        let stock = self.stock(name).ok_or_else(|| Failed::because("the stock is not open"))?;
        match stock.take(&format!("order-{order}"), 1).await.map_err(Failed::because)? {
            Sale::Taken => Ok(()),
            sale => Err(Failed::because(format!("an order was answered with {sale:?}"))),
        }
    }
}

impl Lock for Handle {
    type Held = Guard;

    async fn take(&mut self) -> Result<Guard, Failed> {
        let taken = match self {
            Self::Mutex(mutex) => mutex.lock().await,
            Self::Read(lock) => lock.read().await,
            Self::Write(lock) => lock.write().await,
            Self::Election(election) => election.campaign().await,
            Self::Polled(polled) => polled.lock().await,
        };
        taken.map_err(Failed::because)
    }

    async fn give_back(&mut self, guard: Guard) -> Result<(), Failed> {
        guard.release().await.map_err(Failed::because)
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        let Self::Mutex(mutex) = self else { return Err(Failed::NoSuchThing) };
        mutex.try_lock().await.map(|guard| guard.is_some()).map_err(Failed::because)
    }
}

/// A candidate that asks for the lock every two seconds or more, with the defaults of client-go. One that led asks as
/// the others do.
#[derive(Debug)]
pub(super) struct Polled {
    mutex: Mutex,
    led: bool,
}

impl Polled {
    async fn lock(&mut self) -> tidelock::Result<Guard> {
        loop {
            if !self.led
                && let Some(guard) = self.mutex.try_lock().await?
            {
                self.led = true;
                return Ok(guard);
            }
            self.led = false;
            // As good as chance, for candidates that begin at different times.
            let jitter = f64::from(Clock::machine().now().as_nanos() as u16) / f64::from(u16::MAX);
            tokio::time::sleep(RETRY.mul_f64(1.0 + 1.2 * jitter)).await;
        }
    }
}
