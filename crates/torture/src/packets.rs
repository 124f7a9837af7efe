//! Packets that get lost: between clients and servers, and among servers.
//!
//! A proxy cannot do that. It closes connections or holds what they say, and confirms each packet to both sides. Here the
//! whole torture moves into a network namespace of its own, where a rule of the kernel's filter drops packets, so nobody
//! is told that a connection is dead. Nothing on the machine changes, and the rules end with the namespace.

use std::{
    env,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use test_servers::{Error, Server};

use crate::stand::Stand;

/// Set for the process that lives in its own network.
const MARK: &str = "TIDELOCK_TORTURE_NETWORK";

/// The faults, each with the packets that it drops.
const FAULTS: [(&str, &str); 2] = [
    // Connections go on, slowly and by fits and starts.
    ("lost-packets", "meta l4proto tcp numgen random mod 100 < 20 drop"),
    // Nobody hears anything, and no connection is closed.
    ("silence", "meta l4proto tcp drop"),
];

/// Whether this process has a network of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    is_own: bool,
}

impl Network {
    /// Starts this program again in a network of its own. Where only root could do that, or a tool is missing, it says so
    /// and goes on without lost packets.
    pub(crate) fn enter() -> Result<Self, String> {
        if env::var_os(MARK).is_some() {
            run(Command::new("ip").args(["link", "set", "lo", "up"])).map_err(|error| error.to_string())?;
            return Ok(Self { is_own: true });
        }
        let unshare = |program: &str| {
            let mut command = Command::new("unshare");
            command.args(["--net", "--", program]);
            command
        };
        let can = run(unshare("nft").args(["list", "ruleset"])).and_then(|()| run(unshare("ip").arg("link")));
        if let Err(why) = can {
            println!("without lost packets, which need root and the packages nftables and iproute2: {why}");
            return Ok(Self { is_own: false });
        }
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let program = program.to_str().ok_or("the path of this program is no text")?;
        Err(unshare(program).args(env::args_os().skip(1)).env(MARK, "own").exec().to_string())
    }

    /// The deployment, with lost packets if it has servers and packets can be lost here.
    pub(crate) fn around(self, stand: Box<dyn Stand>) -> Box<dyn Stand> {
        if self.is_own && !stand.url().starts_with("file:") { Box::new(Unreliable(stand)) } else { stand }
    }
}

/// A deployment whose packets get lost.
struct Unreliable(Box<dyn Stand>);

impl Stand for Unreliable {
    fn url(&self) -> String {
        self.0.url()
    }

    fn keepers(&self) -> Vec<&Server> {
        self.0.keepers()
    }

    fn faults(&self) -> Vec<&'static str> {
        let mut faults = self.0.faults();
        faults.extend(FAULTS.map(|(name, _)| name));
        faults
    }

    fn long_ttl_ms(&self) -> Option<u64> {
        self.0.long_ttl_ms()
    }

    fn doubles(&self) -> bool {
        self.0.doubles()
    }

    fn excludes(&self) -> bool {
        self.0.excludes()
    }

    fn cause(&self, fault: &str) -> Result<(), Error> {
        match FAULTS.iter().find(|(name, _)| *name == fault) {
            Some((_, rule)) => filter(&format!(
                "table inet torture {{\nchain lose {{\ntype filter hook input priority 0;\n{rule}\n}}\n}}\n"
            )),
            None => self.0.cause(fault),
        }
    }

    fn heal(&self, fault: &str) -> Result<(), Error> {
        if FAULTS.iter().any(|(name, _)| *name == fault) {
            filter("flush ruleset")
        } else {
            self.0.heal(fault)
        }
    }
}

/// Changes the rules of this network.
fn filter(rules: &str) -> Result<(), Error> {
    let spawn = || -> io::Result<_> {
        let mut nft =
            Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut input) = nft.stdin.take() {
            input.write_all(rules.as_bytes())?;
        }
        nft.wait_with_output()
    };
    let output = spawn().map_err(|error| Error::new(format!("nft: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(format!("nft: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// Runs a command that says nothing if it succeeds.
fn run(command: &mut Command) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| Error::new(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
