//! The sockets of this client: its doorbell and its proof of life.
//!
//! | file in `s/` | what |
//! |---|---|
//! | `ID` | a datagram socket: clients that grant something to this one ring here |
//! | `ID.life` | a stream socket: clients that wait behind this one connect and hear its end |
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

use super::{codec::Ring, errors::failed};
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
        let cannot = |error: io::Error| failed("make a socket in", &folder, &error);
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

    /// Rings at a client. Never blocks: a doorbell that is full has been rung, and its client
    /// then reads all of its claims again.
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
        // What cannot be listed is left to the next client.
        let Ok(clients) = clients(&self.folder) else { return };
        for client in clients.take(SWEPT) {
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

/// The clients that have a doorbell in a folder.
fn clients(folder: &Path) -> io::Result<impl Iterator<Item = ClientId>> {
    let names = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers =
        names.filter(|name| name.len() == 16).filter_map(|name| u64::from_str_radix(&name, 16).ok());
    Ok(numbers.map(ClientId::from_u64))
}

/// The first process that is alive in a folder of sessions, as people know it.
pub(super) fn first_alive(folder: &Path) -> Result<Option<String>, Failure> {
    let cannot = |error: io::Error| failed("read", folder, &error);
    let clients = match clients(folder) {
        Ok(clients) => clients,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let looks = UnixDatagram::unbound().map_err(cannot)?;
    for client in clients {
        let path = folder.join(format!("{client:?}"));
        let life = looks.connect(&path).map_or_else(|error| life_after(&error), |()| Life::Alive);
        if life == Life::Alive {
            let text = fs::read_to_string(path.with_extension("txt")).unwrap_or_default();
            return Ok(Some(text.trim().replace('\n', ", ")));
        }
    }
    Ok(None)
}

/// Clears away what dead clients left in a folder.
pub(super) fn clear(folder: &Path) -> io::Result<()> {
    let clients = match clients(folder) {
        Ok(clients) => clients,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let looks = UnixDatagram::unbound()?;
    for client in clients {
        let path = folder.join(format!("{client:?}"));
        if looks.connect(&path).is_err_and(|error| life_after(&error) == Life::Dead) {
            for path in [path.with_extension("txt"), path.with_extension("life"), path] {
                // Somebody else may have been faster.
                let _ = fs::remove_file(path);
            }
        }
    }
    Ok(())
}

/// What an error of a socket says. Only a clear no means dead: where in doubt the lease decides.
pub(super) fn life_after(error: &io::Error) -> Life {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Life::Dead,
        _ => Life::Alive,
    }
}
