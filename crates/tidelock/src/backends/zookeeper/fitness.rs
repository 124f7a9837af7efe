//! Whether the servers are fit for locks, and what should be corrected about them.

use std::{sync::Arc, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    link::{connection, session::Session},
    settings::ZookeeperSettings,
};

/// How long a server may take to say what it is.
const STATUS: Duration = Duration::from_millis(500);

/// What a server says about itself.
#[derive(Debug)]
pub(super) struct Fitness {
    status: Option<String>,
}

impl Fitness {
    /// Asks the first server, if it lets itself be asked.
    pub(super) async fn ask(config: &ZookeeperSettings) -> Self {
        let status = tokio::time::timeout(STATUS, status(config, &config.hosts[0])).await;
        Self { status: status.ok().flatten() }
    }

    /// What should be corrected, one sentence each.
    pub(super) fn concerns(&self, config: &ZookeeperSettings, sessions: &[Arc<Session>]) -> Vec<String> {
        let mut concerns = Vec::new();
        if self.status.as_ref().is_some_and(|status| status.contains("Mode: standalone")) {
            concerns.push(
                "ZooKeeper runs alone: while it is down there are no locks; use an ensemble of three"
                    .to_owned(),
            );
        } else if config.hosts.len() == 1 {
            concerns.push(
                "the URL names one server of ZooKeeper: name all, or locks are lost with that one".to_owned(),
            );
        }
        if config.has_open_nodes() {
            concerns.push(
                "anybody may delete the nodes of locks: give the URL a login, or set its option acl"
                    .to_owned(),
            );
        }
        if config.login.as_ref().is_some_and(|login| !login.sasl) && config.tls.is_none() {
            concerns.push("the password is sent in the clear: use zookeepers://".to_owned());
        }
        for session in sessions {
            let (asked, agreed) = (session.asked, session.timeout());
            if agreed < asked {
                concerns.push(format!(
                    "the server ends sessions after {agreed:?} where {asked:?} was asked for: leases are shorter; raise maxSessionTimeout or use a shorter ttl"
                ));
            } else if agreed > asked {
                concerns.push(format!(
                    "the server ends sessions after {agreed:?} where {asked:?} was asked for: locks of clients that die stay longer; lower minSessionTimeout or use a longer ttl"
                ));
            }
        }
        concerns
    }
}

async fn status(config: &ZookeeperSettings, host: &(String, u16)) -> Option<String> {
    let mut stream = connection::connect(config, host).await.ok()?;
    stream.write_all(b"srvr").await.ok()?;
    stream.flush().await.ok()?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.ok()?;
    String::from_utf8(text).ok().filter(|text| text.contains("Mode:"))
}
