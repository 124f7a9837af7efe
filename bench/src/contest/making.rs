//! Making the program of a peer: once, until its sources change, and never in silence.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use tidelock::line::Moment;

use super::{
    program::Launch,
    progress::{Progress, Step},
};

/// How often somebody who watches sees that it goes on.
const TICK: Duration = Duration::from_millis(200);
/// No program takes longer, unless a download hangs.
const LONGEST: f64 = 1_200.0;
/// What was made of which sources.
const STAMP: &str = ".made";
const LOG: &str = ".make.log";

/// What is to be made.
pub(super) struct Making<'a> {
    pub(super) name: &'a str,
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    pub(super) commands: Vec<Launch>,
    /// What has to be there afterwards.
    pub(super) made: Vec<PathBuf>,
    pub(super) typical: f64,
}

impl Making<'_> {
    /// Makes it, unless that was done. The error says what is missing.
    pub(super) fn run(&self, progress: &Progress) -> Result<(), String> {
        let said = |error: io::Error| format!("its folder: {error}");
        let mut hash = DefaultHasher::new();
        copy(&self.from, &self.to, &mut hash).map_err(said)?;
        self.commands.iter().for_each(|command| command.words.hash(&mut hash));
        let stamp = format!("{:016x}", hash.finish());
        let is_there = || self.made.iter().all(|path| path.exists());
        if fs::read_to_string(self.to.join(STAMP)).is_ok_and(|known| known == stamp) && is_there() {
            progress.show(&format!("{} is built already", self.name));
            return Ok(());
        }
        let step = Step { key: format!("build {}", self.name), typical: self.typical };
        let began = progress.now();
        progress.say(&format!("{} is built", self.name));
        for command in &self.commands {
            self.command(command, &step, began, progress)?;
        }
        progress.took(&step.key, progress.seconds_since(began));
        if !is_there() {
            return Err("its build made no program".to_owned());
        }
        fs::write(self.to.join(STAMP), stamp).map_err(said)
    }

    fn command(
        &self,
        launch: &Launch,
        step: &Step,
        began: Moment,
        progress: &Progress,
    ) -> Result<(), String> {
        let program = launch.words.first().map(String::as_str).unwrap_or_default();
        let log = self.to.join(LOG);
        let files = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = files.map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = launch.command()?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let mut child = command.spawn().map_err(|error| format!("{program} cannot be run: {error}"))?;
        let what = format!("{} is built ({program})", self.name);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if progress.seconds_since(began) < LONGEST => {
                    progress.beside(&what, step, began);
                    thread::sleep(TICK);
                }
                unfinished => {
                    // It is of no use any more; if it is gone, so much the better.
                    let _ = child.kill();
                    let _ = child.wait();
                    let why = unfinished.err().map_or_else(|| format!("took {LONGEST} s"), |e| e.to_string());
                    return Err(format!("{program}: {why}"));
                }
            }
        };
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Err(format!("{program} failed: {first}"))
    }
}

/// Only what changed, so that tools which look at times do not make it again.
fn copy(from: &Path, to: &Path, hash: &mut DefaultHasher) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut files = fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        // What Python keeps beside its sources changes whenever they run.
        if file.file_name() == "__pycache__" {
            continue;
        }
        let (from, to) = (file.path(), to.join(file.file_name()));
        if from.is_dir() {
            copy(&from, &to, hash)?;
            continue;
        }
        let text = fs::read(&from)?;
        (file.file_name(), &text).hash(hash);
        if fs::read(&to).ok().as_ref() != Some(&text) {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_is_not_built_again_until_its_sources_change_and_a_failure_is_said() {
        let folder = std::env::temp_dir().join(format!("tidelock-bench-making-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("source"), "1").unwrap();
        let progress = Progress::new(Vec::new(), folder.join("times"));
        let make = |script: &str| {
            let words = ["sh", "-c", script].map(str::to_owned).to_vec();
            let command = Launch { folder: to.clone(), words, environment: Vec::new() };
            let (from, to, made) = (from.clone(), to.clone(), vec![to.join("program")]);
            Making { name: "a peer", from, to, commands: vec![command], made, typical: 1.0 }.run(&progress)
        };
        let built = || fs::read_to_string(to.join("program")).unwrap();
        let script = "echo x >> program";
        make(script).unwrap();
        make(script).unwrap();
        assert_eq!(built(), "x\n");
        fs::write(from.join("source"), "2").unwrap();
        make(script).unwrap();
        assert_eq!(built(), "x\nx\n");
        assert_eq!(make("echo no compiler; exit 1").unwrap_err(), "sh failed: no compiler");
        fs::remove_dir_all(folder).unwrap();
    }
}
