//! The scenarios that clients in all languages play (`clients/scenarios.json`), with programs in Rust that use the
//! library in process. Those that need a server beside the program are left to the other languages.

#![allow(clippy::disallowed_methods, reason = "tests wait in real time")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod program;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Lines, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::{Value, json};
use test_servers::{Redis, Server};

fn main() -> ExitCode {
    if program::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/scenarios.json");
    let list: Value = serde_json::from_str(&fs::read_to_string(list).unwrap()).unwrap();
    let scenarios = list["scenarios"].as_array().unwrap().clone();
    let trials = scenarios.into_iter().filter(|scenario| scenario["needs"] != "server").map(|scenario| {
        let name = scenario["name"].as_str().unwrap().replace(' ', "_");
        Trial::test(name, move || Stage::new().play(&scenario))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// A program under test.
struct Program {
    child: Child,
    says: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    asked: Value,
}

impl Program {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(program::URL, url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (says, hears) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, says, lines: BufReader::new(hears).lines(), asked: Value::Null }
    }

    fn hear(&mut self) -> Value {
        let line = self.lines.next().expect("the program has ended").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            // A thread of it may run on for a while.
            waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Also one that is stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One scenario, with stores of its own.
struct Stage {
    stores: BTreeMap<&'static str, Server>,
    programs: BTreeMap<String, Program>,
    tokens: BTreeMap<(String, String), u64>,
    counter: PathBuf,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("counter");
        fs::write(&counter, "0").unwrap();
        let stores = ["one", "other"].map(|store| (store, Redis::new().start().unwrap()));
        Self {
            stores: stores.into(),
            programs: BTreeMap::new(),
            tokens: BTreeMap::new(),
            counter,
            _folder: folder,
        }
    }

    fn play(&mut self, scenario: &Value) -> Result<(), Failed> {
        let names: Vec<String> = match scenario["each"].as_array() {
            Some(each) => each.iter().map(|name| name.as_str().unwrap().to_owned()).collect(),
            None => vec!["n".to_owned()],
        };
        for name in names {
            for step in scenario["steps"].as_array().unwrap() {
                self.step(scenario, &name, step).map_err(|wrong| format!("({name}) {step}: {wrong}"))?;
            }
        }
        Ok(())
    }

    fn step(&mut self, scenario: &Value, name: &str, step: &Value) -> Result<(), String> {
        let (who, what) = (step[0].as_str().unwrap(), step[1].as_str().unwrap());
        if who == "store" {
            let store = &self.stores["one"];
            let done = if what == "stop" { store.pause() } else { store.resume() };
            return done.map_err(|error| error.to_string());
        }
        let store = scenario["stores"][who].as_str().unwrap_or("one");
        let url = self.stores[store].url();
        let program = self.programs.entry(who.to_owned()).or_insert_with(|| Program::start(url));
        match what {
            "stop" => program.signal(Signal::STOP),
            "continue" => program.signal(Signal::CONT),
            "kill" => program.signal(Signal::KILL),
            "answer" => return self.answer(who, store, step),
            _ => {
                let mut asked = step[2].clone();
                asked["do"] = json!(what.trim_start_matches('~'));
                asked["file"] = json!(self.counter);
                if asked["name"] == "n" {
                    asked["name"] = json!(name);
                }
                if scenario["each"].is_array() && asked["as"].is_string() {
                    // All of them are held at the same time.
                    asked["as"] = json!(format!("{}{name}", asked["as"].as_str().unwrap()));
                }
                writeln!(program.says, "{asked}").map_err(|error| error.to_string())?;
                program.asked = asked;
                if !what.starts_with('~') {
                    return self.answer(who, store, step);
                }
            }
        }
        Ok(())
    }

    /// Waits for the answer, and compares it.
    fn answer(&mut self, who: &str, store: &str, step: &Value) -> Result<(), String> {
        let program = self.programs.get_mut(who).unwrap();
        let answer = program.hear();
        if answer["result"] != step[3] {
            return Err(format!("{answer}"));
        }
        let (name, share) = (&program.asked["name"], &program.asked["share"]);
        let exclusive = share.is_null() || share == "exclusive";
        if let (Some(token), Some(name), true) = (answer["token"].as_str(), name.as_str(), exclusive) {
            let token: u64 = token.parse().unwrap();
            let last = self.tokens.insert((store.to_owned(), name.to_owned()), token);
            if last.is_some_and(|last| token <= last) {
                return Err(format!("the token {token} is not larger than the last one"));
            }
        }
        Ok(())
    }
}
