//! Everything that reads bytes from outside, for fuzzing: whatever the bytes are, no reader may panic, hang or use
//! memory without bound.
//!
//! `tests/hostile_input` plays the kept inputs and variations of them; `fuzz/` searches for new ones.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use crate::{
    Name, Period, Ticket, Token,
    backend::{Ask, Claim, ClaimId, ClientId, Leave, Share},
    clock::Moment,
    model::line::{Line, StoreTime},
};

/// A reader of bytes that anybody may have written.
#[derive(Clone, Copy)]
pub struct Reader {
    /// Its name, which is also that of the folder of its kept inputs.
    pub name: &'static str,
    /// Reads the bytes. What comes of it does not matter.
    pub read: fn(&[u8]),
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&self.name).finish()
    }
}

/// All readers of this build.
pub fn readers() -> Vec<Reader> {
    let mut readers = vec![Reader { name: "url", read: urls }, Reader { name: "text", read: texts }];
    let mut add = |name, read| readers.push(Reader { name, read });
    #[cfg(feature = "file")]
    {
        add("file_bucket", crate::backends::file::hostile::bucket);
        add("file_records", crate::backends::file::hostile::records);
    }
    #[cfg(feature = "redis")]
    {
        add("redis_reply", crate::backends::redis::hostile::reply);
        add("redis_record", crate::backends::redis::hostile::record);
    }
    #[cfg(feature = "etcd")]
    add("etcd_message", crate::backends::etcd::hostile::message);
    #[cfg(feature = "zookeeper")]
    {
        add("zookeeper_frame", crate::backends::zookeeper::hostile::frame);
        add("zookeeper_node", crate::backends::zookeeper::hostile::node);
    }
    #[cfg(feature = "postgres")]
    add("postgres_notice", crate::backends::postgres::hostile::notice);
    readers
}

/// URLs of every store. What a typed config says of itself must not panic either.
fn urls(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    macro_rules! read {
        ($($feature:literal $config:path,)*) => {$(
            #[cfg(feature = $feature)]
            if let Ok(config) = <$config>::from_url(text) {
                let _ = format!("{config:?}");
            }
        )*};
    }
    let _ = crate::backends::memory::MemoryConfig::from_url(text);
    read! {
        "file" crate::backends::file::FileConfig,
        "redis" crate::backends::redis::RedisConfig,
        "redis" crate::backends::redlock::RedlockConfig,
        "etcd" crate::backends::etcd::EtcdConfig,
        "zookeeper" crate::backends::zookeeper::ZookeeperConfig,
        "postgres" crate::backends::postgres::PostgresConfig,
        "mysql" crate::backends::mysql::MysqlConfig,
    }
}

/// What people and programs hand over as text: names, tickets, tokens, slots. What is read is written as it was.
fn texts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = Name::new(text) {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(ticket) = Ticket::from_str(text) {
        assert_eq!(Ticket::from_str(&ticket.to_string()).expect("a ticket of ours"), ticket);
    }
    if let Ok(token) = Token::from_str(text) {
        assert_eq!(Token::from_str(&token.to_string()).expect("a token of ours"), token);
    }
    let _ = Period::from_str(text);
}

/// A claim of ours among what others wrote.
pub(crate) fn a_claim() -> Arc<Claim> {
    Arc::new(Claim {
        id: ClaimId::new(ClientId::from_u64(7), 9),
        name: Name::new("a").expect("a name"),
        share: Share::Exclusive,
        owner: None,
        ttl: Duration::from_secs(30),
        label: "us".into(),
        detached: false,
        writes: false,
        auto_renew: true,
    })
}

/// Does with a line of others what a store does with it.
pub(crate) fn use_line(name: &Name, mut line: Line) {
    let claim = a_claim();
    let mut effects = Vec::new();
    for micros in [0, 1, 1_000_000, u64::MAX / 2_000] {
        let at = StoreTime { lease: Moment::from_nanos(micros.saturating_mul(1_000)), micros };
        let _ = line.look(name, at);
        line.enter(&claim, Ask::Queue, at, &mut effects);
        line.renew(claim.id, at, &mut effects);
        line.reap(at, &mut effects);
        line.leave(claim.id, Leave::Done, at, &mut effects);
        let _ = (line.may_be_forgotten(at), line.next_lapse(), line.longest_ttl());
    }
}
