//! Databases with a second server that takes over once.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use test_servers::{Error, MariaDb, MariaDbPair, Postgres, Server, wait_for};

use crate::{administrator::trouble, many::PATIENCE, stand::Stand};

/// A primary and a standby that takes over once.
pub(crate) struct StandbyPair {
    servers: [Server; 2],
    primary: AtomicUsize,
}

impl StandbyPair {
    pub(crate) fn start() -> Result<Self, Error> {
        let primary = Postgres::new().durable().start()?;
        let standby = Postgres::new().durable().start_standby(&primary)?;
        Ok(Self { servers: [primary, standby], primary: AtomicUsize::new(0) })
    }

    fn primary(&self) -> &Server {
        &self.servers[self.primary.load(Ordering::Relaxed)]
    }
}

impl Stand for StandbyPair {
    fn url(&self) -> String {
        let [one, other] = &self.servers;
        format!("postgres://postgres@{},{}/postgres", one.addr(), other.addr())
    }

    fn keepers(&self) -> Vec<&Server> {
        vec![self.primary()]
    }

    fn faults(&self) -> Vec<&'static str> {
        vec!["failover", "restart", "pause", "kill-sessions", "kill-backend", "vacuum", "checkpoint"]
    }

    fn doubles(&self) -> bool {
        true
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "failover" if self.primary.load(Ordering::Relaxed) == 0 => {
                self.servers[0].kill()?;
                let standby = &self.servers[1];
                wait_for("the standby is promoted", PATIENCE, || {
                    // What it still replays may get in the way of the question.
                    let _ = standby.ask(&["-c", "SELECT pg_promote()"]);
                    standby.ask(&["-c", "SELECT pg_is_in_recovery()"]).is_ok_and(|is| is.trim() == "f")
                })?;
                self.primary.store(1, Ordering::Relaxed);
                Ok(())
            }
            // The first primary is gone for good: what it wrote last, the other one does not know.
            "failover" | "restart" => self.primary().kill(),
            "pause" => self.primary().pause(),
            _ => trouble(self.primary(), fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        let primary = self.primary();
        match fault {
            "failover" | "restart" if primary.pid().is_none() => primary.restart(),
            "pause" => primary.resume(),
            _ => Ok(()),
        }
    }
}

/// A primary and a semi-synchronous replica, behind one address as operators put it there.
pub(crate) struct ReplicaPair {
    pair: MariaDbPair,
    relay: Relay,
    promoted: AtomicUsize,
}

impl ReplicaPair {
    pub(crate) fn start() -> Result<Self, Error> {
        let pair = MariaDb::new().durable().start_replicated(true)?;
        let relay = Relay::to(pair.primary().addr()).map_err(|error| Error::new(error.to_string()))?;
        Ok(Self { pair, relay, promoted: AtomicUsize::new(0) })
    }

    fn is_promoted(&self) -> bool {
        self.promoted.load(Ordering::Relaxed) > 0
    }

    fn primary(&self) -> &Server {
        if self.is_promoted() { self.pair.replica() } else { self.pair.primary() }
    }
}

impl Stand for ReplicaPair {
    fn url(&self) -> String {
        let server = self.pair.primary();
        server.url().replace(&server.addr().to_string(), &self.relay.addr.to_string())
    }

    fn keepers(&self) -> Vec<&Server> {
        vec![self.primary()]
    }

    fn faults(&self) -> Vec<&'static str> {
        vec!["failover", "restart", "pause", "kill-sessions", "restart-replica", "flush"]
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        match fault {
            "failover" if !self.is_promoted() => {
                self.pair.primary().kill()?;
                self.pair.promote()?;
                self.promoted.store(1, Ordering::Relaxed);
                self.relay.lead_to(self.pair.replica().addr());
                Ok(())
            }
            "restart-replica" if !self.is_promoted() => self.pair.replica().kill(),
            // The first primary is gone for good: nobody tells it what happened since.
            "failover" | "restart" | "restart-replica" => self.primary().kill(),
            "pause" => self.primary().pause(),
            _ => trouble(self.primary(), fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        if fault == "pause" {
            return self.primary().resume();
        }
        for server in [self.primary(), self.pair.replica()] {
            if server.pid().is_none() {
                server.restart()?;
            }
        }
        Ok(())
    }
}

/// An address that leads to one server, and later to another one.
struct Relay {
    addr: SocketAddr,
    target: Arc<Mutex<Target>>,
}

struct Target {
    server: SocketAddr,
    open: Vec<TcpStream>,
}

impl Relay {
    fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let target = Arc::new(Mutex::new(Target { server, open: Vec::new() }));
        let seen = Arc::clone(&target);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A server that does not answer is what its client finds.
                let _ = Self::link(&client, &seen);
            }
        });
        Ok(Self { addr, target })
    }

    fn link(client: &TcpStream, target: &Mutex<Target>) -> io::Result<()> {
        let mut target = target.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TcpStream::connect(target.server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        target.open.retain(|stream| stream.take_error().is_ok() && stream.peer_addr().is_ok());
        target.open.extend([client.try_clone()?, server.try_clone()?]);
        for (mut from, mut to) in
            [(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)]
        {
            std::thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                // Either may be closed already.
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        Ok(())
    }

    fn lead_to(&self, server: SocketAddr) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        target.server = server;
        for stream in target.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
