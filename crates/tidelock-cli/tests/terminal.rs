//! The real binary on a real terminal: a pseudo-terminal with a session of its own.

#![cfg(target_os = "linux")]

mod common;

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use common::{Store, until};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

const TIDELOCK: &str = env!("CARGO_BIN_EXE_tidelock");
const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// A terminal with somebody who types and reads.
struct Terminal {
    keys: File,
    screen: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
    child: Child,
}

impl Terminal {
    /// Runs a program in a session with this terminal. `setsid` does what needs a system call
    /// between fork and exec.
    fn run(program: &[&str]) -> Self {
        let keys =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keys).and_then(|()| unlockpt(&keys)).expect("a terminal");
        let path = ptsname(&keys, Vec::new()).expect("a path");
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.as_bytes())).to_owned();
        let open = || File::options().read(true).write(true).open(&path).expect("a terminal");
        tcsetwinsize(&keys, Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            // The tests may have been started with signals ignored, as by nohup.
            .args(["env", "--default-signal"])
            .args(program)
            .env_remove("TIDELOCK_URL")
            .env_remove("TIDELOCK_URL_FILE")
            .env_remove("TIDELOCK_URL_WITHHELD")
            .env("PS1", "> ")
            .env("LC_ALL", "C")
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("setsid runs");
        let keys = File::from(keys);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut eyes, seen) = (keys.try_clone().expect("a copy"), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut some = [0; 4096];
            // The end of the last process on a terminal is an error to its reader.
            while let Ok(n @ 1..) = eyes.read(&mut some) {
                seen.lock().expect("no panic").push_str(&String::from_utf8_lossy(&some[..n]));
            }
        });
        Self { keys, screen, reader, child }
    }

    /// An interactive shell with job control.
    fn shell() -> Self {
        let terminal = Self::run(&["bash", "--norc", "--noprofile", "--noediting", "-i"]);
        terminal.sees("> ");
        terminal
    }

    fn screen(&self) -> String {
        self.screen.lock().expect("no panic").clone()
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        let mut last = String::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(text, || {
                last = self.screen();
                last.contains(text)
            });
        }));
        assert!(seen.is_ok(), "{text:?} is not on the screen: {:?}", self.screen());
    }

    fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Waits for the end of the program, and until all that it printed is on the screen.
    fn code(&mut self) -> Option<i32> {
        let code = self.child.wait().expect("it ends").code();
        until("the terminal is closed", || self.reader.is_finished());
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The session ends with its terminal; what is left of a failed test hears that it hung up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(script: &str) -> Vec<&str> {
    vec![TIDELOCK, "run", "job", "--url", "memory:", "--", "sh", "-c", script]
}

#[test]
fn the_command_reads_from_the_terminal() {
    let mut terminal = Terminal::run(&run("echo ready; read line; echo \"read $line\"; exit 7"));
    terminal.sees("ready");
    terminal.type_keys("hello\n");
    terminal.sees("read hello");
    assert_eq!(terminal.code(), Some(7));
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let script = "trap 'echo got; n=$((n+1)); [ $n -lt 2 ] || exit 9' INT; echo ready; \
                  while :; do sleep 0.01; done";
    let mut terminal = Terminal::run(&run(script));
    terminal.sees("ready");
    terminal.type_keys(CTRL_C);
    terminal.sees("got");
    terminal.type_keys(CTRL_C);
    assert_eq!(terminal.code(), Some(9));
    assert_eq!(terminal.screen().matches("got").count(), 2);
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_catch_it() {
    let mut terminal = Terminal::run(&run("echo ready; read line"));
    terminal.sees("ready");
    terminal.type_keys(CTRL_C);
    assert_eq!(terminal.code(), Some(130));
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let mut shell = Terminal::shell();
    shell.type_keys(&format!(
        "{TIDELOCK} run job --url memory: -- sh -c 'echo re\"\"ady; read line; echo \"read $line\"'\n"
    ));
    shell.sees("ready");
    shell.type_keys(CTRL_Z);
    shell.sees("Stopped");
    shell.type_keys("echo sh\"\"ell; fg\n");
    shell.sees("shell");
    shell.type_keys("hello\n");
    shell.sees("read hello");
    shell.type_keys("echo after $?; exit 3\n");
    shell.sees("after 0");
    assert_eq!(shell.code(), Some(3));
}

#[test]
fn ctrl_z_stops_a_script_around_the_command_too() {
    let mut shell = Terminal::shell();
    shell.type_keys(&format!(
        "sh -c '{TIDELOCK} run job --url memory: -- sh -c \"echo re\"\"ady; read line; echo got-\\$line\"; read next; echo and-$next'\n"
    ));
    shell.sees("ready\r\n");
    shell.type_keys(CTRL_Z);
    shell.sees("Stopped");
    shell.type_keys("fg\n");
    shell.type_keys("one\n");
    shell.sees("got-one");
    // The terminal is the script's again.
    shell.type_keys("two\n");
    shell.sees("and-two");
    shell.type_keys("exit\n");
    shell.code();
}

#[test]
fn a_lock_lost_while_the_job_was_stopped_ends_the_command_when_it_is_continued() {
    let mut shell = Terminal::shell();
    shell.type_keys(&format!(
        "{TIDELOCK} run job --ttl 100ms --url memory: -- sh -c 'trap \"echo no\"\"t-this\" CONT; echo re\"\"ady; read line'\n"
    ));
    shell.sees("ready");
    shell.type_keys(CTRL_Z);
    shell.sees("Stopped");
    // The lease runs out meanwhile.
    shell.type_keys("sleep 0.3; fg; echo code $?\n");
    shell.sees("lost lock \"job\"");
    shell.sees("code 123");
    assert!(!shell.screen().contains("not-this"));
    shell.type_keys("exit\n");
    shell.code();
}

#[test]
fn a_command_that_is_killed_leaves_the_terminal_as_it_was() {
    let store = Store::new();
    let mut shell = Terminal::shell();
    // Raw and deaf, as an editor that hangs.
    let url = store.url();
    shell.type_keys(&format!(
        "{TIDELOCK} run job --kill-after 50ms --url {url} -- sh -c 'trap \"\" TERM; stty -icanon -echo; \
         {TIDELOCK} break job --reason test --url {url}; sleep 600'; echo code $?; stty -a | grep -o '.icanon'\n"
    ));
    shell.sees("code 123");
    shell.sees(" icanon\r\n");
    shell.type_keys("exit\n");
    shell.code();
}

#[test]
fn a_job_in_the_background_can_be_brought_to_the_foreground() {
    let mut shell = Terminal::shell();
    shell.type_keys(&format!(
        "{TIDELOCK} run job --url memory: -- sh -c 'echo re\"\"ady; read line; echo \"read $line\"' &\n"
    ));
    shell.sees("ready");
    // It reads from the terminal in the background: it is stopped, and the shell says so when asked.
    until("it is stopped", || {
        shell.type_keys("jobs\n");
        shell.screen().contains("Stopped")
    });
    shell.type_keys("fg\n");
    shell.type_keys("hello\n");
    shell.sees("read hello");
    shell.type_keys("exit\n");
    shell.code();
}

#[test]
fn a_command_whose_output_is_caught_reads_from_the_terminal() {
    let mut shell = Terminal::shell();
    shell.type_keys(&format!(
        "x=$({TIDELOCK} run job --url memory: -- sh -c 'echo re\"\"ady >&2; read line; echo \"read $line\"')\n"
    ));
    shell.sees("ready");
    shell.type_keys("hello\necho \"[$x]\"\n");
    shell.sees("[read hello]");
    shell.type_keys("exit\n");
    shell.code();
}

#[test]
fn a_command_in_a_pipe_gets_the_terminal_when_it_asks() {
    let mut shell = Terminal::shell();
    shell.type_keys(&format!(
        "{TIDELOCK} run job --url memory: -- sh -c 'echo re\"\"ady; read line; echo \"read $line\"' | cat\n"
    ));
    shell.sees("ready");
    shell.type_keys("hello\n");
    shell.sees("read hello");
    shell.type_keys("exit\n");
    shell.code();
}

#[test]
fn a_line_tells_the_place_and_the_holder_and_is_erased_in_the_end() {
    let store = Store::new();
    let mut holder = store.run(&["job", "--label", "worker-7"], "echo up; read line");
    assert_eq!(holder.line(), "up");
    let url = store.url();
    let mut terminal = Terminal::run(&[TIDELOCK, "run", "job", "--url", &url, "--", "echo", "done"]);
    terminal.sees("\rtidelock: waiting for lock \"job\" for ");
    terminal.sees(": place 1 of 1 in line, held by worker-7 for ");
    terminal.sees("\x1b[K\rtidelock: ");
    holder.say("go on");
    assert_eq!(terminal.code(), Some(0));
    terminal.sees("done");
    let screen = terminal.screen();
    assert!(screen.ends_with("\r\x1b[Kdone\r\n"), "{screen:?}");
    assert!(!screen.trim_end().contains('\n'), "{screen:?}");
}

#[test]
fn nobody_is_told_of_a_wait_that_is_over_at_once() {
    let mut terminal = Terminal::run(&[TIDELOCK, "run", "job", "--url", "memory:", "--", "echo", "done"]);
    assert_eq!(terminal.code(), Some(0));
    terminal.sees("done");
    let screen = terminal.screen();
    assert!(!screen.contains("waiting"), "{screen:?}");
}

#[test]
fn ctrl_c_ends_the_wait_and_leaves_the_line() {
    let store = Store::new();
    let mut holder = store.run(&["job"], "echo up; read line");
    assert_eq!(holder.line(), "up");
    let url = store.url();
    let mut terminal = Terminal::run(&[TIDELOCK, "run", "job", "--url", &url, "--", "echo", "never"]);
    terminal.sees("place 1 of 1");
    terminal.type_keys(CTRL_C);
    assert_eq!(terminal.code(), Some(130));
    assert_eq!(store.waiters("job"), 0);
    assert!(!terminal.screen().contains("never"));
}

#[test]
fn a_line_tells_that_the_store_is_not_reachable_and_ctrl_c_ends_the_wait() {
    // A port that nobody listens at.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let url = format!("redis://127.0.0.1:{port}");
    let mut terminal = Terminal::run(&[TIDELOCK, "run", "job", "--url", &url, "--", "true"]);
    terminal.sees("waiting for lock \"job\" for ");
    terminal.sees("redis is not reachable");
    terminal.type_keys(CTRL_C);
    assert_eq!(terminal.code(), Some(130));
}

#[test]
fn break_lists_what_it_found_and_asks_whether_to_break_it() {
    let store = Store::new();
    let url = store.url();
    for name in ["deploy/1", "deploy/2"] {
        assert!(store.output(&["acquire", name, "--label", "ci"]).status.success());
    }
    let args = [TIDELOCK, "break", "--prefix", "deploy/", "--reason", "CI is gone", "--url", &url];
    for answer in ["n\n", "\n", "yo\n", "\x04"] {
        let mut terminal = Terminal::run(&args);
        terminal.sees("break these 2 locks? [y/N] ");
        let screen = terminal.screen();
        assert!(screen.contains("deploy/1  ci ") && screen.contains("deploy/2  ci "), "{screen}");
        terminal.type_keys(answer);
        assert_eq!(terminal.code(), Some(1));
        assert!(terminal.screen().contains("nothing was broken"), "{}", terminal.screen());
        assert_eq!((store.holders("deploy/1"), store.holders("deploy/2")), (1, 1));
    }
    let mut terminal = Terminal::run(&args);
    terminal.sees("[y/N] ");
    terminal.type_keys("y\n");
    assert_eq!(terminal.code(), Some(0));
    terminal.sees("evicted ci from lock \"deploy/2\"");
    assert_eq!((store.holders("deploy/1"), store.holders("deploy/2")), (0, 0));
}
