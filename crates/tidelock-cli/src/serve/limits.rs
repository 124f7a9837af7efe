//! How much one client and all of them may use.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{peer::Client, problem::Problem};

/// Counts the streams that are open.
#[derive(Clone, Debug)]
pub(super) struct Limits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_per_client: usize,
    open: Mutex<HashMap<Client, usize>>,
}

/// The right to one stream, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limits: Limits,
    client: Client,
}

impl Limits {
    pub(super) fn new(most: usize, most_per_client: usize) -> Self {
        Self(Arc::new(Inner { most, most_per_client, open: Mutex::default() }))
    }

    /// One more stream for a client, if there is room.
    pub(super) fn stream(&self, client: Client) -> Result<Permit, Problem> {
        let Inner { most, most_per_client, open } = &*self.0;
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        if all >= *most {
            return Err(Problem::too_many(format!(
                "this server has {most} streams open, which is its limit"
            )));
        }
        let own = open.entry(client).or_default();
        if *own >= *most_per_client {
            return Err(Problem::too_many(format!(
                "this client has {most_per_client} streams open, which is its limit"
            )));
        }
        *own += 1;
        Ok(Permit { limits: self.clone(), client })
    }
}

impl Limits {
    /// How many streams are open.
    pub(super) fn open(&self) -> usize {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.limits.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.client);
            }
        }
    }
}

/// Allows as many open files as the administrator lets this process have: each stream is one.
pub(super) fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it fails, connections that are too many wait.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_for_each_client_and_for_all() {
        let limits = Limits::new(3, 2);
        let [one, other] = [1, 2].map(Client::Process);
        let first = limits.stream(one).unwrap();
        let _second = limits.stream(one).unwrap();
        assert!(limits.stream(one).is_err(), "its own limit");
        let _third = limits.stream(other).unwrap();
        assert!(limits.stream(other).is_err(), "the limit of all");
        drop(first);
        assert!(limits.stream(other).is_ok());
    }
}
