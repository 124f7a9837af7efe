//! A process between tidelock and its command, which outlives tidelock by a moment.
//!
//! It starts the command, tells tidelock what becomes of it, and when tidelock dies, in whatever way, it
//! ends all that the command started. On Linux the kernel gives it every process whose parents died (it
//! is a *subreaper*), so nothing gets away from it: not what left the process group, not what called
//! `setsid`. Elsewhere it ends the process group.
//!
//! When the command ends and tidelock did not stop it, tidelock lets the watcher go: what was left behind
//! on purpose stays. The watcher does not decide that itself. A command may die of the signal that stops it
//! before the watcher hears that it is stopped.

use std::{
    collections::HashSet,
    ffi::OsString,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait, waitpid},
};

use crate::{exit::Exit, shim, signals};

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It has begun, in a group of this number.
    Started(i32),
    /// It could not be started, for this reason of the system.
    NotStarted(i32),
    /// A signal stopped it.
    Stopped(i32),
    /// It ended with this code.
    Ended(i32),
    /// A signal ended it.
    Killed(i32),
    /// Nothing that it started is left.
    Alone,
}

/// A kind and a number.
const EVENT_BYTES: usize = 5;

impl Event {
    fn to_bytes(self) -> [u8; EVENT_BYTES] {
        let (kind, value) = match self {
            Self::Started(pid) => (0, pid),
            Self::NotStarted(error) => (1, error),
            Self::Stopped(signal) => (2, signal),
            Self::Ended(code) => (3, code),
            Self::Killed(signal) => (4, signal),
            Self::Alone => (5, 0),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [kind, a, b, c, d]
    }

    fn from_bytes([kind, a, b, c, d]: [u8; EVENT_BYTES]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        Some(match kind {
            0 => Self::Started(value),
            1 => Self::NotStarted(value),
            2 => Self::Stopped(value),
            3 => Self::Ended(value),
            4 => Self::Killed(value),
            5 => Self::Alone,
            _ => return None,
        })
    }

    fn of(status: WaitStatus) -> Self {
        match (status.stopping_signal(), status.exit_status(), status.terminating_signal()) {
            (Some(signal), _, _) => Self::Stopped(signal),
            (None, Some(code), _) => Self::Ended(code),
            (None, None, signal) => Self::Killed(signal.unwrap_or_default()),
        }
    }
}

/// Tidelock's end of the watcher. Dropped before it was let go, it ends all that the command started.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// Nobody else has this end: the kernel closes it when this process dies.
    line: Option<tokio::net::UnixStream>,
    /// The beginning of an event that is not complete.
    partial: Vec<u8>,
    process: Option<Child>,
}

impl Watcher {
    /// Starts a watcher, and with it a command whose environment is prepared by `prepare`.
    pub(crate) fn start(
        command: &[OsString],
        foreground: bool,
        prepare: impl Fn(&mut Command),
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let process = match shim::watcher(command, foreground) {
            Ok(mut watcher) => {
                prepare(&mut watcher);
                // A group of its own, so that what ends the command or tidelock does not end it too.
                let process = watcher.process_group(0).stdin(OwnedFd::from(theirs)).spawn()?;
                send_input(&ours)?;
                Some(process)
            }
            // Where this program cannot be found again (no /proc) the command has to do without: it is
            // not tied to tidelock's life.
            Err(_) => {
                let mut plain = shim::plain(command);
                prepare(&mut plain);
                let child = plain.process_group(0).spawn()?;
                thread::spawn(move || follow_plainly(&child, &theirs));
                None
            }
        };
        ours.set_nonblocking(true)?;
        let line = tokio::net::UnixStream::from_std(ours)?;
        Ok(Self { line: Some(line), partial: Vec::new(), process })
    }

    /// What happens next. Nothing if the watcher itself is gone. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.partial.first_chunk().copied() {
                self.partial.drain(..EVENT_BYTES);
                return Event::from_bytes(event);
            }
            let line = self.line.as_ref()?;
            line.readable().await.ok()?;
            let mut some = [0; 64];
            match line.try_read(&mut some) {
                Ok(0) => return None,
                Ok(n) => self.partial.extend_from_slice(&some[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Asks what the command started to end, wherever it is.
    pub(crate) fn stop(&self) {
        self.say(STOP);
    }

    /// Ends the watch after the end of the command. What the command left behind stays.
    pub(crate) fn let_go(&self) {
        self.say(LET_GO);
    }

    fn say(&self, word: u8) {
        if let Some(line) = &self.line {
            // A watcher that is gone has nobody to ask.
            let _ = line.try_write(&[word]);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // From here on what is left is killed, unless the watcher was let go.
        drop(self.line.take());
        if let Some(process) = &mut self.process {
            let _ = process.wait();
        }
    }
}

/// Tells what becomes of a child of this process.
fn follow_plainly(child: &Child, line: &UnixStream) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    tell(line, Event::Started(pid.as_raw_nonzero().get()));
    while let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::UNTRACED) {
        tell(line, Event::of(status));
        if status.stopping_signal().is_none() {
            return tell(line, Event::Alone);
        }
    }
}

fn tell(mut line: &UnixStream, event: Event) {
    // If tidelock is gone, nobody needs to know.
    let _ = line.write_all(&event.to_bytes());
}

/// What tidelock says to its watcher.
const STOP: u8 = b's';
const LET_GO: u8 = b'l';

/// Gives our standard input to the watcher, for the command: its own is the line to us.
fn send_input(line: &UnixStream) -> io::Result<()> {
    let input = io::stdin();
    let fds = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(line, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

fn receive_input(line: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(line, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// The watcher's own process: starts a command and watches over it.
pub(crate) fn watch(command: &[OsString], foreground: bool) -> Exit {
    // A supervisor that tells a whole control group to end (systemd does) means the command, which
    // hears it: if the watcher died of it, the command would be killed instead.
    let blocked = signals::block();
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let Ok(line) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return Exit::Failed;
    };
    let Some(input) = receive_input(&line) else { return Exit::Failed };
    let mut child = shim::beginner(command, foreground, blocked);
    // From the main thread, which is there until the end: the kernel kills the command when the thread
    // ends that started it.
    let child = match child.process_group(0).stdin(Stdio::from(input)).spawn() {
        Ok(child) => child,
        Err(error) => {
            tell(&line, Event::NotStarted(error.raw_os_error().unwrap_or_default()));
            return Exit::Failed;
        }
    };
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return Exit::Failed };
    tell(&line, Event::Started(pid.as_raw_nonzero().get()));
    let ears = line.try_clone();
    thread::spawn(move || listen(ears, pid));
    follow(pid, &line);
    Exit::Done
}

/// Tells what becomes of the command, and reaps those that the kernel gave to us.
fn follow(command: Pid, line: &UnixStream) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::UNTRACED) {
        if pid == command {
            tell(line, Event::of(status));
        }
    }
    tell(line, Event::Alone);
}

/// Hears what tidelock says, and that it is gone.
fn listen(line: io::Result<UnixStream>, command: Pid) {
    let mut word = [0];
    while line.as_ref().is_ok_and(|mut line| line.read(&mut word).is_ok_and(|n| n > 0)) {
        if word == [LET_GO] {
            std::process::exit(0);
        }
        // Those of the group were told by tidelock.
        for pid in descendants(Some(command)) {
            signal(pid, Signal::TERM);
            // A stopped process hears TERM only when it goes on.
            signal(pid, Signal::CONT);
        }
    }
    let _ = kill_process_group(command, Signal::KILL);
    kill_descendants();
    std::process::exit(0);
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // One that is gone needs none, and one of another user cannot be reached.
        let _ = kill_process(pid, signal);
    }
}

/// Kills all that descends from this process, until nothing is left that can be killed.
fn kill_descendants() {
    for _ in 0..200 {
        let mut stopped = HashSet::new();
        loop {
            // Stopped first: those who could start others must not while we look.
            let fresh: Vec<_> = descendants(None).into_iter().filter(|pid| !stopped.contains(pid)).collect();
            if fresh.is_empty() {
                break;
            }
            fresh.iter().for_each(|pid| signal(*pid, Signal::STOP));
            stopped.extend(fresh);
        }
        if stopped.is_empty() {
            return;
        }
        stopped.iter().for_each(|pid| signal(*pid, Signal::KILL));
        thread::sleep(Duration::from_millis(5));
    }
}

/// All processes that descend from this one and have not ended, but for those of a group, where the
/// system tells (Linux).
fn descendants(except: Option<Pid>) -> Vec<i32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let alive: Vec<_> = pids.filter_map(|pid| Some((pid, parent_and_group(pid)?))).collect();
    let mut found = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(alive.iter().filter(|(_, (of, _))| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    let except = except.map(|group| group.as_raw_nonzero().get());
    let is_left = |pid: &i32| alive.iter().any(|(it, (_, group))| it == pid && Some(*group) != except);
    found.split_off(1).into_iter().filter(is_left).collect()
}

/// The parent and the group of a process that has not ended.
fn parent_and_group(pid: i32) -> Option<(i32, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (!matches!(state, "Z" | "X")).then_some((parent, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_heard_as_they_were_told() {
        for event in [
            Event::Started(i32::MAX),
            Event::NotStarted(2),
            Event::Stopped(20),
            Event::Ended(255),
            Event::Killed(9),
            Event::Alone,
        ] {
            assert_eq!(Event::from_bytes(event.to_bytes()), Some(event));
        }
        assert_eq!(Event::from_bytes([9; EVENT_BYTES]), None);
    }
}
