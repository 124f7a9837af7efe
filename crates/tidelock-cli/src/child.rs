//! The command under the lock: its process group, its terminal, its signals and its end.

use std::{
    io,
    pin::{Pin, pin},
    process::Command,
    time::Duration,
};

use rustix::process::{
    Pid as ProcessId, Signal, getpid, kill_current_process_group, kill_process, kill_process_group,
    test_kill_process_group,
};
use tokio::time::{Sleep, sleep};

use crate::{
    exit::Exit,
    hold::Hold,
    output::{self, Trouble},
    plan::Run,
    shim,
    signals::Signals,
    terminal::Terminal,
    watcher::{Event, Watcher},
};

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// By itself, or by a signal that somebody sent.
    Done(Exit),
    /// It was stopped because the lock was lost.
    Lost,
}

/// Runs the command until it ends, and ends it if the lock is lost.
pub(crate) async fn run(hold: &Hold, plan: &Run, signals: &mut Signals) -> Result<Ended, Trouble> {
    // Before the command starts: what is caught here, the end of children too, has its default there.
    let mut jobs = Signals::job_control()?;
    // This process may have been stopped between the grant and here.
    if !hold.is_held() {
        return Err(hold.lost().await.into());
    }
    let mut child = match Child::start(hold, plan).await {
        Ok(child) => child,
        // Not that the command cannot be run: it may have begun.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Ended::Done(unwatched())),
        Err(error) => return Ok(Ended::Done(shim::failed(&plan.command[0], &error))),
    };
    let mut lost = pin!(hold.lost());
    loop {
        tokio::select! {
            biased;
            why = &mut lost => {
                output::complain(&why);
                child.stop(plan.grace).await;
                return Ok(Ended::Lost);
            }
            event = child.watcher.next() => {
                if let Some(exit) = child.changed(event, hold) {
                    return Ok(Ended::Done(exit));
                }
            }
            signal = jobs.next() => match signal {
                // The watcher, which tells it in its own way.
                Signal::CHILD => {}
                Signal::CONT => child.go_on(hold),
                signal => child.send(signal),
            },
            signal = signals.next() => child.send(signal),
        }
    }
}

/// A command that runs.
#[derive(Debug)]
struct Child {
    /// Its process id, and that of its group.
    group: ProcessId,
    /// Its parent, which tells what becomes of it and ends it if we die.
    watcher: Watcher,
    terminal: Option<Terminal>,
    /// Whether it has, or had when it was stopped, the terminal.
    has_terminal: bool,
}

impl Child {
    async fn start(hold: &Hold, plan: &Run) -> io::Result<Self> {
        let terminal = Terminal::open();
        let has_terminal = Terminal::is_wanted() && terminal.as_ref().is_some_and(Terminal::is_ours);
        let mut watcher =
            Watcher::start(&plan.command, has_terminal, |command| Self::introduce(hold, plan, command))?;
        let group = match watcher.next().await {
            Some(Event::Started(pid)) => ProcessId::from_raw(pid),
            Some(Event::NotStarted(error)) => return Err(io::Error::from_raw_os_error(error)),
            _ => None,
        };
        let group = group.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Self { group, watcher, terminal, has_terminal })
    }

    /// Tells a command, in its environment, under which locks of which store it runs.
    fn introduce(hold: &Hold, plan: &Run, command: &mut Command) {
        let names = &plan.ask.names;
        let tokens: Vec<_> = names
            .iter()
            .map(|name| hold.token(name).map_or_else(String::new, |token| token.to_string()))
            .collect();
        plan.store.introduce(plan.pass_url, command);
        command.env("TIDELOCK_NAME", names[0].as_str()).env("TIDELOCK_TOKEN", &tokens[0]);
        // Those of a tidelock around this one are not ours.
        command.env_remove("TIDELOCK_NAMES").env_remove("TIDELOCK_TOKENS").env_remove("TIDELOCK_SLOT");
        command.env_remove("TIDELOCK_FOREIGN_TOKEN").env_remove("TIDELOCK_FOREIGN_TOKENS");
        let foreign: Vec<_> = names.iter().filter_map(|name| hold.foreign_token(name)).collect();
        if let Some(token) = foreign.first() {
            command.env("TIDELOCK_FOREIGN_TOKEN", token.to_string());
        }
        if let Some(slot) = hold.slot() {
            command.env("TIDELOCK_SLOT", slot.to_string());
        }
        if names.len() > 1 {
            // A name has no control character, so a line each is unambiguous.
            let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
            command.env("TIDELOCK_NAMES", names.join("\n")).env("TIDELOCK_TOKENS", tokens.join("\n"));
            if foreign.len() == names.len() {
                let foreign: Vec<_> = foreign.iter().map(u64::to_string).collect();
                command.env("TIDELOCK_FOREIGN_TOKENS", foreign.join("\n"));
            }
        }
    }

    /// Sends a signal to all of the group. Who is gone needs none.
    fn send(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    fn give_terminal(&mut self) {
        if self.terminal.as_ref().is_some_and(|terminal| terminal.give(self.group)) {
            self.has_terminal = true;
        }
    }

    /// Follows what became of the command: its exit if it ended.
    fn changed(&mut self, event: Option<Event>, hold: &Hold) -> Option<Exit> {
        match event {
            Some(Event::Ended(code)) => {
                self.watcher.let_go();
                Some(Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)))
            }
            Some(Event::Killed(signal)) => {
                self.watcher.let_go();
                Some(Exit::Signal(signal))
            }
            Some(Event::Stopped(signal)) => {
                self.stopped(signal, hold);
                None
            }
            Some(Event::Started(_) | Event::NotStarted(_) | Event::Alone) => None,
            // Somebody killed the watcher, and the kernel the command with it.
            None => {
                self.send(Signal::KILL);
                Some(unwatched())
            }
        }
    }

    /// Follows the command when the terminal stopped it. If somebody stopped it by hand (STOP), the
    /// lock stays held and renewed: that is what they will expect.
    fn stopped(&mut self, signal: i32, hold: &Hold) {
        let tty = [Signal::TTIN, Signal::TTOU].into_iter().find(|tty| tty.as_raw() == signal);
        if tty.is_some() && self.terminal.as_ref().is_some_and(|it| it.is_ours() || it.is_of(self.group)) {
            // It wants the terminal, and it is ours to give, or was given while the command stopped.
            self.give_terminal();
            return self.send(Signal::CONT);
        }
        if tty.is_none() && signal != Signal::TSTP.as_raw() {
            return;
        }
        // The shell that started us waits for us to stop. It cannot be TSTP, which we catch, nor
        // STOP, which would stop us for ever where no shell is there to continue us; the kernel
        // leaves out these two there.
        let stop = tty.unwrap_or(Signal::TTOU);
        let had_terminal = self.has_terminal;
        if let Some(terminal) = &self.terminal {
            terminal.take(self.group);
        }
        // Here we stop.
        let _ = if had_terminal || tty.is_some() {
            // The terminal told the command only: a script around us has to stop as well.
            kill_current_process_group(stop)
        } else {
            kill_process(getpid(), stop)
        };
        self.go_on(hold);
    }

    /// After a stop. If the lock was lost meanwhile the command stays as it is, for `stop` to end it:
    /// not one instruction more.
    fn go_on(&mut self, hold: &Hold) {
        if hold.is_held() {
            if self.has_terminal || Terminal::is_wanted() {
                self.give_terminal();
            }
            self.send(Signal::CONT);
        }
    }

    /// Ends the command and what it started: TERM, and KILL after the grace for those who are left.
    async fn stop(&mut self, grace: Duration) {
        self.send(Signal::TERM);
        // A stopped process hears TERM only when it goes on.
        self.send(Signal::CONT);
        self.watcher.stop();
        let mut grace = pin!(sleep(grace));
        let mut killed = false;
        let mut alone = false;
        loop {
            tokio::select! {
                () = grace.as_mut(), if !killed => {
                    self.send(Signal::KILL);
                    killed = true;
                }
                event = self.watcher.next() => match event {
                    Some(Event::Ended(_) | Event::Killed(_)) => break,
                    Some(Event::Alone) | None => {
                        alone = true;
                        break;
                    }
                    Some(_) => {}
                },
            }
        }
        self.outlived(grace, alone).await;
        if let Some(terminal) = &self.terminal {
            terminal.take(self.group);
            // An editor that was killed leaves a terminal on which nobody can type.
            terminal.restore();
        }
    }

    /// What the command started and left behind may not go on without the lock either. What is left
    /// after the grace, the watcher kills when it is dropped.
    async fn outlived(&mut self, mut grace: Pin<&mut Sleep>, mut alone: bool) {
        while !alone || test_kill_process_group(self.group).is_ok() {
            if grace.is_elapsed() {
                return self.send(Signal::KILL);
            }
            // Where the system does not make them children of the watcher nobody tells when they end.
            tokio::select! {
                () = grace.as_mut() => {}
                event = self.watcher.next(), if !alone => alone = matches!(event, None | Some(Event::Alone)),
                () = sleep(Duration::from_millis(10)) => {}
            }
        }
    }
}

/// Says that somebody killed the watcher, and with it the command.
fn unwatched() -> Exit {
    output::complain(&"the process that watches over the command was killed, and the command with it");
    Exit::Failed
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take(self.group);
        }
    }
}
