//! The sockets of this client: its doorbell and its proof of life.
//!
//! | file in `s/` | what |
//! |---|---|
//! | `ID` | a datagram socket: whoever grants something to this client rings here |
//! | `ID.life` | a stream socket: whoever waits behind this client connects and hears its end |
//! | `ID.txt` | process and program, for people |
//!
//! Ids are random and never used again. A socket that refuses, or is not there, belonged to a client
//! that is over, and it stays over. The kernel closes sockets with the process that had them, however
//! it died, so nobody asks for process numbers, which differ between containers.

use std::{
    fs, io,
    os::unix::net::{UnixDatagram, UnixListener},
    path::{Path, PathBuf},
};

use super::codec::Ring;
use crate::backend::{ClientId, Failure};

/// How many sessions a newcomer looks at, to clear away what is left of those that were killed.
const SWEPT: usize = 256;

/// This client, as others see it.
#[derive(Debug)]
pub(super) struct Session {
    folder: PathBuf,
    client: ClientId,
    /// Rings at others. Not bound: nobody answers.
    bell: UnixDatagram,
    /// Looks whether others are there, one after the other.
    looks: UnixDatagram,
}

/// Whether somebody is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    Dead,
}

impl Session {
    /// Binds the sockets of a client.
    pub(super) fn open(
        directory: &Path,
        client: ClientId,
    ) -> Result<(Self, UnixDatagram, UnixListener), Failure> {
        let folder = directory.join("s");
        let cannot = |error: io::Error| {
            Failure::denied(format!("cannot make a socket in {}: {error}", folder.display()))
        };
        let bell = UnixDatagram::unbound().map_err(cannot)?;
        bell.set_nonblocking(true).map_err(cannot)?;
        let looks = UnixDatagram::unbound().map_err(cannot)?;
        let session = Self { folder: folder.clone(), client, bell, looks };
        session.sweep();
        // The doorbell first: without it the other two would be taken for remains.
        let doorbell = UnixDatagram::bind(session.path(client)).map_err(cannot)?;
        doorbell.set_nonblocking(true).map_err(cannot)?;
        let life = UnixListener::bind(session.life(client)).map_err(cannot)?;
        life.set_nonblocking(true).map_err(cannot)?;
        let program = std::env::args_os().next().unwrap_or_default();
        let text = format!("pid {}\nprogram {}\n", std::process::id(), program.to_string_lossy());
        fs::write(session.text(client), text).map_err(cannot)?;
        Ok((session, doorbell, life))
    }

    fn path(&self, client: ClientId) -> PathBuf {
        self.folder.join(format!("{client:?}"))
    }

    /// Where a client is watched.
    pub(super) fn life(&self, client: ClientId) -> PathBuf {
        self.folder.join(format!("{client:?}.life"))
    }

    fn text(&self, client: ClientId) -> PathBuf {
        self.folder.join(format!("{client:?}.txt"))
    }

    /// Whether the sockets of this client are still where others look for them.
    pub(super) fn is_found(&self) -> bool {
        self.path(self.client).exists()
    }

    /// Whether a client is alive. Does not wake it.
    pub(super) fn probe(&self, client: ClientId) -> Life {
        self.looks.connect(self.path(client)).map_or_else(|error| life_after(&error), |()| Life::Alive)
    }

    /// Rings at a client. Never blocks: a doorbell that is full has been rung, and whoever hears
    /// that many rings reads all of its claims again.
    pub(super) fn ring(&self, client: ClientId, ring: &Ring) -> Life {
        let sent = self.bell.send_to(&ring.write(), self.path(client));
        sent.map_or_else(|error| life_after(&error), |_| Life::Alive)
    }

    /// Clears away what a dead client left behind.
    pub(super) fn bury(&self, client: ClientId) {
        // The doorbell last: as long as it is there, somebody else can still find the others.
        for path in [self.text(client), self.life(client), self.path(client)] {
            // Somebody else may have been faster.
            let _ = fs::remove_file(path);
        }
    }

    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let clients =
            names.filter(|name| name.len() == 16).filter_map(|name| u64::from_str_radix(&name, 16).ok());
        for client in clients.take(SWEPT).map(ClientId::from_u64) {
            if self.probe(client) == Life::Dead {
                self.bury(client);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.bury(self.client);
    }
}

/// What an error of a socket says. Only a clear no means dead: where in doubt the lease decides.
pub(super) fn life_after(error: &io::Error) -> Life {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Life::Dead,
        _ => Life::Alive,
    }
}
