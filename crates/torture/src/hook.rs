//! How `tidelock torture` reaches the servers: it calls this program as its hook, which passes the word on to the
//! process that started the servers.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    process::ExitCode,
};

use crate::{entries, stand::Stand};

/// The first word of this program's arguments when it is the hook.
pub(crate) const HOOK: &str = "hook";

/// Asks how many entries the servers have.
pub(crate) const COUNT: &str = "count";

/// Passes a word on, and says how it went.
pub(crate) fn call(socket: &Path, word: &str) -> ExitCode {
    let answer = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(word.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    };
    match answer() {
        Ok(answer) if answer == "ok" => ExitCode::SUCCESS,
        Ok(answer) if answer.parse::<u64>().is_ok() => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Ok(answer) => failed(&answer),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("the hook: {why}");
    ExitCode::FAILURE
}

/// The word that ends the process's part.
const END: &str = "end";

/// Ends [`serve`].
pub(crate) fn end(socket: &Path) -> io::Result<()> {
    UnixStream::connect(socket)?.write_all(END.as_bytes())
}

/// Does what the hook is called for, until [`end`]: a fault, or `heal` for the last one.
pub(crate) fn serve(listener: &UnixListener, stand: &dyn Stand) {
    let mut last = String::new();
    for mut stream in listener.incoming().map_while(Result::ok) {
        let mut word = String::new();
        if BufReader::new(&stream).read_line(&mut word).is_err() {
            continue;
        }
        if word == END {
            return;
        }
        let ok = |()| "ok".to_owned();
        let done = match word.as_str() {
            COUNT => entries::of(&stand.keepers()).map(|entries| entries.to_string()),
            "heal" => stand.heal(&last).map(ok),
            fault => {
                last = fault.to_owned();
                stand.cause(fault).map(ok)
            }
        };
        let answer = done.unwrap_or_else(|error| error.to_string().replace('\n', " "));
        // A hook that is gone does not want to know.
        let _ = stream.write_all(answer.as_bytes());
    }
}
