//! From a URL to a store.

use std::sync::Arc;

use crate::{
    backend::{Backend, ClientId},
    backends::memory::{MemoryBackend, MemoryStock, MemoryStore},
    clock::Clock,
    error::{Error, Result},
    stock::StockStore,
};

/// The schemes that this build knows.
pub(crate) const SCHEMES: &[&str] = &[
    #[cfg(all(unix, feature = "file"))]
    "file",
    "memory",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "rediss",
    #[cfg(feature = "redis")]
    "redis+unix",
    #[cfg(feature = "redis")]
    "redis+sentinel",
    #[cfg(feature = "redis")]
    "rediss+sentinel",
    #[cfg(feature = "redis")]
    "redis+cluster",
    #[cfg(feature = "redis")]
    "rediss+cluster",
    #[cfg(feature = "redis")]
    "redlock",
    #[cfg(feature = "redis")]
    "redlocks",
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "etcd")]
    "etcds",
    #[cfg(feature = "zookeeper")]
    "zookeeper",
    #[cfg(feature = "zookeeper")]
    "zookeepers",
    #[cfg(feature = "zookeeper")]
    "zk",
    #[cfg(feature = "zookeeper")]
    "zks",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "postgres")]
    "postgresql",
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "mysql")]
    "mariadb",
];

/// The schemes of stores that keep stock.
const STOCK_SCHEMES: &[&str] = &[
    #[cfg(all(unix, feature = "file"))]
    "file",
    "memory",
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "redis")]
    "redis",
];

/// Connects the store of a URL on behalf of a client.
pub(crate) async fn backend(url: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    // A path is a store in files, taken as it is.
    if url.starts_with(['/', '.']) {
        return file(url, true, client);
    }
    // Only the scheme is ever shown: the rest may hold a password.
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(Error::invalid_url(format!(
            "a store is named by a URL such as memory:, and this has no scheme (this build has: {})",
            SCHEMES.join(", ")
        )));
    };
    match scheme {
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => etcd(url, client).await,
        "file" => file(rest, false, client),
        "memory" => memory(rest, client),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => mysql(url, client).await,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres(url, client).await,
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => redis(url, client).await,
        #[cfg(feature = "redis")]
        "redlock" | "redlocks" => redlock(url, client).await,
        #[cfg(feature = "zookeeper")]
        "zookeeper" | "zookeepers" | "zk" | "zks" => zookeeper(url).await,
        other => Err(Error::invalid_url(format!(
            "this build of tidelock has no store for the URL scheme {:?} (it has: {}): mend the URL or enable the crate's feature for that store",
            other.chars().take(32).collect::<String>(),
            SCHEMES.join(", ")
        ))),
    }
}

/// Connects the store of a URL to keep stock in.
pub(crate) async fn stock(url: &str) -> Result<Arc<dyn StockStore>> {
    if url.starts_with(['/', '.']) {
        return file_stock(url, true);
    }
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "file" => file_stock(rest, false),
        "memory" => {
            check_memory(rest)?;
            Ok(if rest.is_empty() { Arc::new(MemoryStock::new()) } else { MemoryStock::shared(rest) })
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            use crate::backends::mysql::{MysqlConfig, MysqlStock};

            let store = MysqlStock::connect(MysqlConfig::from_url(url)?).await;
            Ok(Arc::new(store.map_err(|failure| Error::failure("mysql", None, &failure))?))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            use crate::backends::postgres::{PostgresConfig, PostgresStock};

            let store = PostgresStock::connect(PostgresConfig::from_url(url)?).await;
            Ok(Arc::new(store.map_err(|failure| Error::failure("postgres", None, &failure))?))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => {
            use crate::backends::redis::{RedisConfig, RedisStock};

            let store = RedisStock::connect(RedisConfig::from_url(url)?).await;
            Ok(Arc::new(store.map_err(|failure| Error::failure("redis", None, &failure))?))
        }
        other if SCHEMES.contains(&other) => Err(Error::invalid_url(format!(
            "{other} keeps locks and no stock: use {} for stock",
            STOCK_SCHEMES.join(", ")
        ))),
        other => Err(Error::invalid_url(format!(
            "this build of tidelock keeps no stock at the URL scheme {:?} (it does at: {}): mend the URL or enable the crate's feature for that store",
            other.chars().take(32).collect::<String>(),
            STOCK_SCHEMES.join(", ")
        ))),
    }
}

#[cfg(all(unix, feature = "file"))]
fn file_stock(place: &str, is_path: bool) -> Result<Arc<dyn StockStore>> {
    use crate::backends::file::{FileConfig, FileStock};

    let config = if is_path { FileConfig::new(place) } else { FileConfig::from_url(place)? };
    let store = FileStock::open(&config);
    Ok(Arc::new(store.map_err(|failure| Error::failure("file", None, &failure))?))
}

#[cfg(not(all(unix, feature = "file")))]
fn file_stock(_: &str, _: bool) -> Result<Arc<dyn StockStore>> {
    Err(Error::invalid_url(
        "this build of tidelock has no store in files: enable the crate's feature \"file\" (on Unix), or use another store",
    ))
}

/// The store in files: `place` is a path as it is, or what follows `file:`.
#[cfg(all(unix, feature = "file"))]
fn file(place: &str, is_path: bool, client: ClientId) -> Result<Arc<dyn Backend>> {
    use crate::backends::file::{FileBackend, FileConfig};

    let config = if is_path { FileConfig::new(place) } else { FileConfig::from_url(place)? };
    let backend = FileBackend::connect(&config, client);
    Ok(Arc::new(backend.map_err(|failure| Error::failure("file", None, &failure))?))
}

#[cfg(not(all(unix, feature = "file")))]
fn file(_: &str, _: bool, _: ClientId) -> Result<Arc<dyn Backend>> {
    Err(Error::invalid_url(
        "this build of tidelock has no store in files: enable the crate's feature \"file\" (on Unix), or use another store",
    ))
}

#[cfg(feature = "etcd")]
async fn etcd(url: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    use crate::backends::etcd::{EtcdBackend, EtcdConfig};

    let backend = EtcdBackend::connect(EtcdConfig::from_url(url)?, client).await;
    Ok(Arc::new(backend.map_err(|failure| Error::failure("etcd", None, &failure))?))
}

#[cfg(feature = "mysql")]
async fn mysql(url: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    use crate::backends::mysql::{MysqlBackend, MysqlConfig};

    let backend = MysqlBackend::connect(MysqlConfig::from_url(url)?, client).await;
    Ok(Arc::new(backend.map_err(|failure| Error::failure("mysql", None, &failure))?))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    use crate::backends::postgres::{PostgresBackend, PostgresConfig};

    let backend = PostgresBackend::connect(PostgresConfig::from_url(url)?, client).await;
    Ok(Arc::new(backend.map_err(|failure| Error::failure("postgres", None, &failure))?))
}

#[cfg(feature = "redis")]
async fn redis(url: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    use crate::backends::redis::{RedisBackend, RedisConfig};

    let backend = RedisBackend::connect(RedisConfig::from_url(url)?, client).await;
    Ok(Arc::new(backend.map_err(|failure| Error::failure("redis", None, &failure))?))
}

#[cfg(feature = "redis")]
async fn redlock(url: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    use crate::backends::redlock::{RedlockBackend, RedlockConfig};

    let backend = RedlockBackend::connect(RedlockConfig::from_url(url)?, client).await;
    Ok(Arc::new(backend.map_err(|failure| Error::failure("redlock", None, &failure))?))
}

#[cfg(feature = "zookeeper")]
async fn zookeeper(url: &str) -> Result<Arc<dyn Backend>> {
    use crate::backends::zookeeper::{ZookeeperBackend, ZookeeperConfig};

    let backend = ZookeeperBackend::connect(ZookeeperConfig::from_url(url)?).await;
    Ok(Arc::new(backend.map_err(|failure| Error::failure("zookeeper", None, &failure))?))
}

fn memory(rest: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    check_memory(rest)?;
    let store = if rest.is_empty() { MemoryStore::new(Clock::machine()) } else { MemoryStore::shared(rest) };
    Ok(Arc::new(MemoryBackend::connect(store, client)))
}

fn check_memory(rest: &str) -> Result<()> {
    if rest.contains(['/', '?', '@']) {
        return Err(Error::invalid_url(
            "the store in memory has no address or options: write memory: or memory:NAME",
        ));
    }
    Ok(())
}
