//! The page of a server, in a real browser.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use super::{Running, Store, browser::Browser, until};

/// `tidelock ui` or `tidelock serve`, which ends with it.
pub(crate) struct Server(Child);

impl Server {
    /// Starts a server, and returns it with the first line that it prints.
    pub(crate) fn start(mut command: Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        (Self(child), line.trim_end().to_owned())
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `tidelock ui` on a store of files, and a browser that shows it.
pub(crate) struct Page {
    pub(crate) browser: Browser,
    pub(crate) store: Store,
    _server: Server,
}

impl Page {
    pub(crate) fn open(args: &[&str]) -> Self {
        Self::of(Store::new(), args)
    }

    pub(crate) fn of(store: Store, args: &[&str]) -> Self {
        let (server, link) = Server::start(store.tidelock(&[&["ui"], args].concat()));
        let browser = Browser::start();
        browser.open(&link);
        browser.until("document.getElementById('state').dataset.state === 'live'");
        Self { browser, store, _server: server }
    }

    /// A holder of a lock, which holds it until it is told to let go.
    pub(crate) fn hold(&self, name: &str, label: &str) -> Running {
        let mut running = self.store.run(&[name, "--label", label], "echo held; read line");
        assert_eq!(running.line(), "held");
        running
    }

    /// One more waiter for a lock.
    pub(crate) fn wait(&self, name: &str, label: &str) -> Running {
        let before = self.store.waiters(name);
        let running = self.store.run(&[name, "--label", label], "echo held; read line");
        until("it waits", || self.store.waiters(name) > before);
        running
    }
}

/// An expression for the names in the list, from top to bottom.
pub(crate) const NAMES: &str = "[...document.querySelectorAll('.rows .row:not(.group)')]\
    .sort((one, two) => one.getBoundingClientRect().top - two.getBoundingClientRect().top)\
    .map((row) => row.querySelector('.name').textContent).join(' ')";
