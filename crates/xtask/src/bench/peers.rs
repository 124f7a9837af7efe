//! Other lock libraries: each is a program in `peers/` that is asked in JSON and answers in JSON.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde::{Deserialize, Serialize};

use crate::progress::Progress;

/// A library, and how its program is made and started.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its folder in `peers/`.
    pub(super) name: &'static str,
    /// What makes its program, each with its arguments.
    make: &'static [&'static [&'static str]],
    /// The program, in its folder.
    run: &'static [&'static str],
}

pub(super) const NODE_REDLOCK: Peer = Peer {
    name: "node-redlock",
    make: &[&["npm", "install", "--no-audit", "--no-fund", "--silent"]],
    run: &["node", "main.js"],
};

pub(super) const REDSYNC: Peer =
    Peer { name: "redsync", make: &[&["go", "build", "-o", "peer", "."]], run: &["./peer"] };

pub(super) const POTTERY: Peer = Peer {
    name: "pottery",
    make: &[
        &["python3", "-m", "venv", "venv"],
        &["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"],
    ],
    run: &["venv/bin/python", "main.py"],
};

/// What a peer is asked.
#[derive(Debug, Serialize)]
pub(super) struct Question<'a> {
    pub(super) scenario: &'a str,
    pub(super) servers: &'a [String],
    pub(super) seconds: f64,
}

/// What a peer did.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) pairs: u32,
    pub(super) seconds: f64,
}

/// A peer that is ready to be asked.
#[derive(Debug)]
pub(super) struct Ready {
    folder: PathBuf,
    run: &'static [&'static str],
}

impl Peer {
    /// Makes the program, in `target/peers/`. The error says what is missing.
    pub(super) fn prepare(&self, progress: &Progress) -> Result<Ready, String> {
        progress.show(&format!("{}: its program is made", self.name));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = root.join("target/peers").join(self.name);
        fs::create_dir_all(&folder).map_err(|error| format!("no folder for {}: {error}", self.name))?;
        let files = fs::read_dir(root.join("peers").join(self.name)).map_err(|error| error.to_string())?;
        for file in files {
            let file = file.map_err(|error| error.to_string())?;
            fs::copy(file.path(), folder.join(file.file_name())).map_err(|error| error.to_string())?;
        }
        for words in self.make {
            run(&folder, words, &[])?;
        }
        Ok(Ready { folder, run: self.run })
    }
}

impl Ready {
    pub(super) fn ask(&self, question: &Question<'_>) -> Result<Answer, String> {
        let question = serde_json::to_string(question).map_err(|error| error.to_string())?;
        let output = run(&self.folder, self.run, &[&question])?;
        serde_json::from_slice(&output.stdout).map_err(|error| format!("a peer said nonsense: {error}"))
    }
}

fn run(folder: &Path, words: &[&str], more: &[&str]) -> Result<Output, String> {
    let (program, args) = words.split_first().ok_or("no program")?;
    // Where it is given by a path it is in the folder, wherever we are.
    let program = if program.contains('/') { folder.join(program) } else { PathBuf::from(program) };
    let output = Command::new(&program).args(args).args(more).current_dir(folder).output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} failed: {}", program.display(), said.lines().last().unwrap_or_default()))
}
