//! Five servers that vote, started by the first trial and shared by all.

use std::sync::Arc;

use test_servers::{Redis, Server};
use tidelock::{
    backends::redlock::{RedlockBackend, RedlockConfig},
    testing::suite::{LONG_TTL, Store},
};

use crate::{
    SHORT_TTL,
    served::{Served, client, number},
    shared::Shared,
};

static FIVE: Shared<Vec<Server>> = Shared::new();

pub(crate) fn five() -> Arc<dyn Store> {
    // Those that keep all they confirm have a vote at once.
    let start = || (0..5).map(|_| Redis::new().durable().start().expect("a server")).collect();
    let hosts: Vec<_> = FIVE.get(start).iter().map(|server| server.addr().to_string()).collect();
    let (hosts, longest) = (hosts.join(","), LONG_TTL.as_millis());
    Arc::new(Served {
        name: "redlock",
        url: format!("redlock://{hosts}?prefix=trial-{}:&longest_ttl_ms={longest}", number()),
        short_ttl: SHORT_TTL,
        connect: |url, id| {
            let config = RedlockConfig::from_url(&url).expect("a URL");
            client(RedlockBackend::connect(config, id))
        },
    })
}

/// Stops whatever was started.
pub(crate) fn stop() {
    FIVE.stop();
}
