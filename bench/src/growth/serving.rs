//! `tidelock serve` in a process of its own.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// A server, until it is dropped.
pub(super) struct Serve {
    child: Child,
    pub(super) socket: PathBuf,
    folder: PathBuf,
}

impl Serve {
    /// Starts the program that is beside this one, and waits until it listens.
    pub(super) fn start(url: &str) -> Result<Self, String> {
        let said = |error: std::io::Error| error.to_string();
        let program = std::env::current_exe().map_err(said)?.with_file_name("tidelock");
        let folder = std::env::temp_dir().join(format!("tidelock-serving-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(said)?;
        let socket = folder.join("serve.sock");
        let mut child = Command::new(&program)
            .args(["serve", "--url", url, "--listen", &format!("unix:{}", socket.display())])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("it has no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(said)?;
        Ok(Self { child, socket, folder })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What is left in a temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
