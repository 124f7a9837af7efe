//! The way into a Redis server that is always open to the tests, whatever its clients face.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::{Error, RedisConnection, Server};

/// A user of a Redis server and the password.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Login {
    /// The user that a client is who does not say a name.
    pub(crate) const DEFAULT_USER: &str = "default";

    /// The name, unless servers and clients assume it.
    pub(crate) fn named_user(&self) -> Option<&str> {
        (self.user != Self::DEFAULT_USER).then_some(self.user.as_str())
    }

    /// What precedes the host in a URL.
    pub(crate) fn in_url(&self) -> String {
        format!("{}:{}@", self.named_user().unwrap_or_default(), self.password)
    }
}

/// Where the administrator comes in.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    Port(SocketAddr),
    /// Of a server with TLS, so that no connection of ours depends on certificates that a test
    /// made bad on purpose.
    Socket(PathBuf),
}

/// How to connect to a Redis server as somebody who may do everything.
#[derive(Debug, Clone)]
pub(crate) struct Administrator {
    pub(crate) door: Door,
    pub(crate) login: Option<Login>,
}

impl Administrator {
    pub(crate) fn connect(&self) -> Result<RedisConnection, Error> {
        let mut redis = match &self.door {
            Door::Port(addr) => RedisConnection::open(*addr)?,
            Door::Socket(path) => RedisConnection::open_socket(path)?,
        };
        if let Some(login) = &self.login {
            redis.call(&["AUTH", &login.user, &login.password])?;
        }
        Ok(redis)
    }

    pub(crate) fn ping(&self) -> Result<(), Error> {
        match self.connect()?.call(&["PING"])? {
            Some(pong) if pong == "PONG" => Ok(()),
            other => Err(Error::new(format!("PING was answered with {other:?}"))),
        }
    }
}

/// Of Redis servers.
impl Server {
    /// Connects to a Redis server as somebody who may do everything, also when its clients need
    /// TLS, a certificate or a password.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or is not a Redis server.
    pub fn administrator(&self) -> Result<RedisConnection, Error> {
        self.redis()?.connect()
    }

    /// Runs one command on a Redis server as its administrator; the answer is that of
    /// [`RedisConnection::call`].
    ///
    /// # Errors
    ///
    /// As [`administrator`](Self::administrator), and when the server answers with an error.
    pub fn command(&self, command: &[&str]) -> Result<Option<String>, Error> {
        self.administrator()?.call(command)
    }

    pub(crate) fn login(&self) -> Option<&Login> {
        self.redis().ok()?.login.as_ref()
    }

    fn redis(&self) -> Result<&Administrator, Error> {
        self.redis_access().ok_or_else(|| Error::new(format!("{} is not a server of Redis", self.store())))
    }
}
