//! A hash slot of a Redis cluster on its way from one master to another.

use crate::deadline::{START_LIMIT, wait_for_value};
use crate::replication::role;
use crate::{Cluster, Error, Server};

/// How many keys travel at once.
const BATCH: &str = "100";

/// How long a journey may take, in milliseconds: less than an answer is waited for.
const TRAVEL_LIMIT: &str = "1500";

/// A slot half-way between two masters: the old one serves the keys that it still has, and sends
/// clients with `ASK` to the new one for all others. Dropping it leaves the slot there.
#[derive(Debug)]
pub struct SlotMove<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a Server,
    to: &'a Server,
}

/// Of Redis clusters.
impl Cluster {
    /// Moves a slot with its keys to another master, while clients may use it; returns when all
    /// members know.
    ///
    /// # Errors
    ///
    /// When `to` is not another master, or a server does not do its part.
    pub fn move_slot(&self, slot: u16, to: &Server) -> Result<(), Error> {
        self.begin_slot_move(slot, to)?.finish()
    }

    /// Opens a slot for the move to another master, and moves no key yet.
    ///
    /// # Errors
    ///
    /// When `to` is not another master.
    pub fn begin_slot_move<'a>(&'a self, slot: u16, to: &'a Server) -> Result<SlotMove<'a>, Error> {
        let from = self.master_of_slot(slot)?;
        let half_way = SlotMove { cluster: self, slot, from, to };
        // In this order: a client that is sent to the new master must be welcome there.
        half_way.set(to, &["IMPORTING", &id(from)?])?;
        half_way.set(from, &["MIGRATING", &id(to)?])?;
        Ok(half_way)
    }
}

impl<'a> SlotMove<'a> {
    /// The slot.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The master that the slot still belongs to.
    #[must_use]
    pub fn from(&self) -> &'a Server {
        self.from
    }

    /// The master that the slot moves to.
    #[must_use]
    pub fn to(&self) -> &'a Server {
        self.to
    }

    /// Moves one key: from now on clients are sent to the new master for it.
    ///
    /// # Errors
    ///
    /// When the old master does not have the key, or a server does not do its part.
    pub fn move_key(&self, key: &str) -> Result<(), Error> {
        match self.migrate(&[key.to_owned()])?.as_str() {
            "OK" => Ok(()),
            answer => Err(Error::new(format!("{key:?} does not move: {answer}"))),
        }
    }

    /// Moves all keys; the slot itself stays half-way.
    ///
    /// # Errors
    ///
    /// When a server does not do its part within a minute.
    pub fn move_keys(&self) -> Result<(), Error> {
        let what = format!("the keys of slot {} have moved", self.slot);
        wait_for_value(&what, START_LIMIT, || match self.move_some_keys() {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })?
    }

    /// Whether there were any.
    fn move_some_keys(&self) -> Result<bool, Error> {
        let list = ["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), BATCH];
        let keys = self.from.administrator()?.call_for_list(&list)?;
        if !keys.is_empty() {
            // That a key is gone before it moves is no error: clients delete, and leases end.
            self.migrate(&keys)?;
        }
        Ok(!keys.is_empty())
    }

    /// Moves the keys that are left and gives the slot to the new master; returns when all members
    /// know.
    ///
    /// # Errors
    ///
    /// When a server does not do its part.
    pub fn finish(self) -> Result<(), Error> {
        self.move_keys()?;
        let new = id(self.to)?;
        // In this order: between the two, clients are sent to a master that knows it is one.
        self.set(self.to, &["NODE", &new])?;
        self.set(self.from, &["NODE", &new])?;
        self.cluster.wait_for_successor(self.slot, self.from)?;
        Ok(())
    }

    /// Gives the move up: the slot stays with the master that has it, which may have been replaced meanwhile.
    ///
    /// # Errors
    ///
    /// When a server does not do its part.
    pub fn give_up(self) -> Result<(), Error> {
        self.set(self.to, &["STABLE"])?;
        if role(self.from).starts_with("master") { self.set(self.from, &["STABLE"]) } else { Ok(()) }
    }

    fn migrate(&self, keys: &[String]) -> Result<String, Error> {
        let (host, port) = (self.to.addr().ip().to_string(), self.to.addr().port().to_string());
        let mut command = vec!["MIGRATE", &host, &port, "", "0", TRAVEL_LIMIT];
        if let Some(login) = self.to.login() {
            command.extend(["AUTH2", &login.user, &login.password]);
        }
        command.push("KEYS");
        command.extend(keys.iter().map(String::as_str));
        Ok(self.from.command(&command)?.unwrap_or_default())
    }

    fn set(&self, server: &Server, state: &[&str]) -> Result<(), Error> {
        let slot = self.slot.to_string();
        let command: Vec<_> =
            ["CLUSTER", "SETSLOT", &slot].into_iter().chain(state.iter().copied()).collect();
        server.command(&command)?;
        Ok(())
    }
}

fn id(server: &Server) -> Result<String, Error> {
    server.command(&["CLUSTER", "MYID"])?.ok_or_else(|| Error::new("a member without a name"))
}
