//! `SET NX PX`, and a script that compares and deletes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use redis::{Client, Cmd, Pipeline, Script, Value, aio::MultiplexedConnection};

use super::{BareLock, Commands};
use crate::drive::{
    lease,
    library::{Failed, Library, Use},
};

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// Sells if there is one left. Knows no orders.
const SELL: &str =
    "if tonumber(redis.call('GET', KEYS[1])) >= 1 then return redis.call('DECRBY', KEYS[1], 1) end return -1";

#[derive(Debug)]
pub(in crate::drive) struct Redis(Arc<Connection>);

#[derive(Debug)]
pub(in crate::drive) struct Connection {
    connection: MultiplexedConnection,
    release: String,
    sell: String,
    /// The value of each taken key is another one.
    next: AtomicU64,
}

impl Redis {
    pub(in crate::drive) async fn connect(url: &str) -> Result<Self, Failed> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url).map_err(Failed::because)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(Failed::because)?;
        let (release, sell) = (Script::new(RELEASE), Script::new(SELL));
        for script in [&release, &sell] {
            script.prepare_invoke().load_async(&mut connection).await.map_err(Failed::because)?;
        }
        let next = AtomicU64::new(u64::from(std::process::id()) << 32);
        let (release, sell) = (release.get_hash().to_owned(), sell.get_hash().to_owned());
        Ok(Self(Arc::new(Connection { connection, release, sell, next })))
    }
}

impl Library for Redis {
    type Lock = BareLock<Connection>;

    async fn lock(&self, name: &str, wanted: Use) -> Result<BareLock<Connection>, Failed> {
        if wanted == Use::Alone { Ok(BareLock::new(&self.0, name)) } else { Err(Failed::NoSuchThing) }
    }

    async fn renew(&self, names: &[String]) -> Result<(), Failed> {
        if names.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(names.len());
        for name in names {
            pipeline.cmd("PEXPIRE").arg(name).arg(millis()).ignore();
        }
        pipeline.exec_async(&mut self.0.connection.clone()).await.map_err(Failed::because)
    }

    async fn trip(&self, name: &str) -> Result<(), Failed> {
        let mut set = Cmd::new();
        set.arg("SET").arg(name).arg("value").arg("PX").arg(millis());
        set.exec_async(&mut self.0.connection.clone()).await.map_err(Failed::because)
    }

    async fn open(&self, name: &str) -> Result<(), Failed> {
        let mut set = Cmd::new();
        set.arg("SET").arg(name).arg(1_000_000_000);
        set.exec_async(&mut self.0.connection.clone()).await.map_err(Failed::because)
    }

    async fn sell(&self, name: &str, _order: u64) -> Result<(), Failed> {
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(&self.0.sell).arg(1).arg(name);
        let left: i64 = call.query_async(&mut self.0.connection.clone()).await.map_err(Failed::because)?;
        if left < 0 { Err(Failed::because("sold out")) } else { Ok(()) }
    }
}

impl Commands for Connection {
    type Held = String;

    async fn take(&self, name: &str) -> Result<Option<String>, Failed> {
        let value = format!("{:032x}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut set = Cmd::new();
        set.arg("SET").arg(name).arg(&value).arg("NX").arg("PX").arg(millis());
        let answer: Value = set.query_async(&mut self.connection.clone()).await.map_err(Failed::because)?;
        Ok((answer == Value::Okay).then_some(value))
    }

    async fn give_back(&self, name: &str, value: String) -> Result<(), Failed> {
        let mut release = Cmd::new();
        release.arg("EVALSHA").arg(&self.release).arg(1).arg(name).arg(value);
        release.exec_async(&mut self.connection.clone()).await.map_err(Failed::because)
    }

    async fn is_free(&self, name: &str) -> Result<bool, Failed> {
        self.take(name).await.map(|taken| taken.is_some())
    }
}

fn millis() -> u64 {
    u64::try_from(lease().as_millis()).unwrap_or(u64::MAX)
}
