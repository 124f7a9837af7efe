//! The command under the lock: its process group, its terminal, its signals and its end.

use std::{
    io,
    os::unix::process::CommandExt,
    pin::{Pin, pin},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{
        Pid as ProcessId, Signal, WaitOptions, WaitStatus, getpid, kill_current_process_group, kill_process,
        kill_process_group, test_kill_process_group, waitpid,
    },
};
use tokio::time::{Sleep, sleep};

use crate::{
    exit::Exit,
    hold::Hold,
    output::{self, Trouble},
    plan::Run,
    shim::{self, Watcher},
    signals::Signals,
    terminal::Terminal,
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
    // Before the command starts, so that its end is not missed.
    let mut jobs = Signals::job_control()?;
    // This process may have been stopped between the grant and here.
    if !hold.is_held() {
        return Err(hold.lost().await.into());
    }
    let mut child = match Child::start(hold, plan) {
        Ok(child) => child,
        Err(error) => return Ok(Ended::Done(shim::failed(&plan.command[0], &error))),
    };
    let mut lost = pin!(hold.lost());
    let status = loop {
        tokio::select! {
            biased;
            why = &mut lost => {
                output::complain(&why);
                child.stop(plan.grace, &mut jobs).await?;
                return Ok(Ended::Lost);
            }
            signal = jobs.next() => match signal {
                Signal::CHILD => {
                    if let Some(status) = child.changed(hold)? {
                        break status;
                    }
                }
                Signal::CONT => child.go_on(hold),
                signal => child.send(signal),
            },
            signal = signals.next() => child.send(signal),
        }
    };
    Ok(Ended::Done(exit(status)))
}

fn exit(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Failed,
    }
}

/// A command that runs.
#[derive(Debug)]
struct Child {
    /// Its process id, and that of its group.
    group: ProcessId,
    /// Where none can be started the command alone dies with us.
    _watcher: Option<Watcher>,
    terminal: Option<Terminal>,
    /// Whether it has, or had when it was stopped, the terminal.
    has_terminal: bool,
}

impl Child {
    fn start(hold: &Hold, plan: &Run) -> io::Result<Self> {
        let terminal = Terminal::open();
        let has_terminal = Terminal::is_wanted() && terminal.as_ref().is_some_and(Terminal::is_ours);
        let mut command = shim::command(&plan.command, has_terminal);
        // A group of its own: loss and signals reach what the command started too.
        command.process_group(0);
        let names = &plan.ask.names;
        let tokens: Vec<_> = names
            .iter()
            .map(|name| hold.token(name).map_or_else(String::new, |token| token.to_string()))
            .collect();
        command.env("TIDELOCK_NAME", names[0].as_str()).env("TIDELOCK_TOKEN", &tokens[0]);
        // Those of a tidelock around this one are not ours.
        command.env_remove("TIDELOCK_NAMES").env_remove("TIDELOCK_TOKENS");
        if names.len() > 1 {
            // A name has no control character, so a line each is unambiguous.
            let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
            command.env("TIDELOCK_NAMES", names.join("\n")).env("TIDELOCK_TOKENS", tokens.join("\n"));
        }
        // Waited for below: the standard library does not tell when a child is stopped.
        let id = command.spawn()?.id();
        let group = i32::try_from(id).ok().and_then(ProcessId::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the system gave an impossible process id"))?;
        Ok(Self { group, _watcher: Watcher::start(group).ok(), terminal, has_terminal })
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

    /// What became of the command: its status if it ended.
    fn changed(&mut self, hold: &Hold) -> io::Result<Option<WaitStatus>> {
        while let Some((_, status)) = waitpid(Some(self.group), WaitOptions::NOHANG | WaitOptions::UNTRACED)?
        {
            match status.stopping_signal() {
                None => return Ok(Some(status)),
                Some(signal) => self.stopped(signal, hold),
            }
        }
        Ok(None)
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

    /// Ends the group: TERM, and KILL after the grace for whoever is left.
    async fn stop(&mut self, grace: Duration, jobs: &mut Signals) -> io::Result<()> {
        self.send(Signal::TERM);
        // A stopped process hears TERM only when it goes on.
        self.send(Signal::CONT);
        let mut grace = pin!(sleep(grace));
        let mut killed = false;
        loop {
            match waitpid(Some(self.group), WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::CHILD) => break,
                Ok(None) => {}
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                () = grace.as_mut(), if !killed => {
                    self.send(Signal::KILL);
                    killed = true;
                }
                _ = jobs.next() => {}
            }
        }
        self.outlived(grace).await;
        if let Some(terminal) = &self.terminal {
            terminal.take(self.group);
            // An editor that was killed leaves a terminal on which nobody can type.
            terminal.restore();
        }
        Ok(())
    }

    /// What the command started and left behind may not go on without the lock either.
    async fn outlived(&self, mut grace: Pin<&mut Sleep>) {
        while test_kill_process_group(self.group).is_ok() {
            if grace.is_elapsed() {
                return self.send(Signal::KILL);
            }
            // They are not our children: nobody tells us when they end.
            tokio::select! {
                () = grace.as_mut() => {}
                () = sleep(Duration::from_millis(10)) => {}
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take(self.group);
        }
    }
}
