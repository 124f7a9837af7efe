//! Locks in a real ZooKeeper server, as a shell sees them.

mod common;

use std::process::Output;

use common::{Running, json, stderr, stdout, tidelock, until};
use test_servers::{Server, Zookeeper};

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo $TIDELOCK_TOKEN; read line";

struct Ensemble(Server);

impl Ensemble {
    fn start() -> Self {
        Self(Zookeeper::new().start().expect("a server"))
    }

    fn output(&self, args: &[&str]) -> Output {
        tidelock(args).env("TIDELOCK_URL", self.0.url()).output().expect("the binary runs")
    }

    fn run(&self, args: &[&str], script: &str) -> Running {
        Running::start(&[&["--url", self.0.url()], args].concat(), script)
    }

    fn waiters(&self, name: &str) -> usize {
        let lock = json(&["show", name, "--json", "--url", self.0.url()]);
        lock["waiters"].as_array().expect("a list").len()
    }
}

#[test]
fn commands_take_turns_and_a_break_tells_why() {
    let ensemble = Ensemble::start();
    let script = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let mut first = ensemble.run(&["job", "--label", "worker-7", "--ttl", "1m"], script);
    assert_eq!(first.line(), "up");
    let mut second = ensemble.run(&["job"], HOLD);
    until("the second waits", || ensemble.waiters("job") == 1);
    let broken = ensemble.output(&["break", "job", "--reason", "it hangs since noon"]);
    assert_eq!((broken.status.code(), stderr(&broken).as_str()), (Some(0), ""));
    assert!(stdout(&broken).starts_with("evicted worker-7 from lock \"job\" on zookeeper after "));
    let (code, out, complaints) = first.end();
    assert_eq!((code, out.as_str()), (Some(123), "told\n"));
    assert!(complaints.contains("it hangs since noon"), "{complaints}");
    let token = second.line();
    assert_ne!(token, "");
    assert!(stdout(&ensemble.output(&["ls"])).contains(&token));
    assert!(stdout(&ensemble.output(&["show", "job"])).contains(&token));
    second.say("go on");
    assert_eq!(second.end().0, Some(0));
    let doctor = ensemble.output(&["doctor"]);
    assert!(stdout(&doctor).contains("runs alone"), "{}{}", stdout(&doctor), stderr(&doctor));
}

#[test]
fn a_ticket_is_renewed_and_given_back_by_other_processes() {
    let ensemble = Ensemble::start();
    let acquired = ensemble.output(&["acquire", "job", "--ttl", "10m"]);
    assert_eq!((acquired.status.code(), stderr(&acquired).as_str()), (Some(0), ""));
    let ticket = stdout(&acquired).trim_end().to_owned();
    assert_eq!(ensemble.output(&["run", "job", "--wait", "0", "--", "true"]).status.code(), Some(124));
    let renewed = ensemble.output(&["renew", &ticket]);
    assert_eq!(stdout(&renewed), "renewed lock \"job\" on zookeeper for 10m00s\n", "{}", stderr(&renewed));
    let released = ensemble.output(&["release", &ticket]);
    assert_eq!(stdout(&released), "gave back lock \"job\" on zookeeper\n", "{}", stderr(&released));
    for verb in ["renew", "release"] {
        assert_eq!(ensemble.output(&[verb, &ticket]).status.code(), Some(123));
    }
    assert_eq!(ensemble.output(&["run", "job", "--wait", "0", "--", "true"]).status.code(), Some(0));
}
