//! A server of `tidelock serve`, and clients that speak HTTP by hand.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{PATIENCE, kill, tidelock};

/// A server in a directory of its own.
pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    pub(crate) socket: PathBuf,
    /// The line that it printed when it was ready.
    pub(crate) listening: Value,
    folder: TempDir,
}

impl Server {
    /// On files, which need no other server.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let url = format!("file:{}", folder.path().join("locks").display());
        Self::of(folder, &["--url", &url])
    }

    pub(crate) fn on(url: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        Self::of(folder, &[&["--url", url], args].concat())
    }

    /// On files, with these arguments too.
    pub(crate) fn with(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let url = format!("file:{}", folder.path().join("locks").display());
        Self::of(folder, &[&["--url", &url], args].concat())
    }

    fn of(folder: TempDir, args: &[&str]) -> Self {
        let socket = folder.path().join("serve.sock");
        let listen = format!("unix:{}", socket.display());
        let mut all = vec!["serve"];
        if !args.contains(&"--listen") {
            all.extend(["--listen", &listen]);
        }
        all.extend(args);
        let (child, input, listening) = spawn(tidelock(all));
        Self { child, input, socket, listening, folder }
    }

    /// The URL of the files that it keeps locks in.
    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.folder.path().join("locks").display())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.id(), signal);
    }

    /// Starts another one in the place of one that has ended.
    pub(crate) fn restart(&mut self) {
        let listen = format!("unix:{}", self.socket.display());
        let _ = self.child.wait();
        (self.child, self.input, self.listening) =
            spawn(tidelock(["serve", "--listen", &listen, "--url", &self.url()]));
    }

    /// Waits for its end: the code, and what it complained of.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let mut complaints = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut complaints).expect("text");
        (self.child.wait().expect("it ends").code(), complaints)
    }

    /// Ends its standard input.
    pub(crate) fn close_input(&mut self) {
        drop(self.input.take());
    }

    pub(crate) fn connect(&self) -> Connection<UnixStream> {
        Connection::unix(&self.socket)
    }

    /// Asks for a lock, and reads the first line of its stream.
    pub(crate) fn hold(&self, name: &str, body: &str) -> Hold {
        Hold::new(self.connect(), name, body)
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut connection = self.connect();
        connection.send(method, path, "", body);
        connection.answer()
    }

    /// Whether a lock is held, as the store says.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        let (status, lock) = self.ask("GET", &format!("/v1/locks/{name}"), "");
        assert_eq!(status, 200, "{lock}");
        !lock["holders"].as_array().expect("a list").is_empty()
    }
}

fn spawn(mut command: Command) -> (Child, Option<ChildStdin>, Value) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    let listening = serde_json::from_str(&line).unwrap_or_else(|error| {
        let mut complaints = String::new();
        let _ = child.kill();
        let _ = child.stderr.take().expect("a pipe").read_to_string(&mut complaints);
        panic!("{error}: {complaints}")
    });
    let input = child.stdin.take();
    (child, input, listening)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// HTTP by hand, so that tests can do what no library does.
pub(crate) struct Connection<S: Read + Write> {
    reader: BufReader<S>,
}

impl Connection<UnixStream> {
    pub(crate) fn unix(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { reader: BufReader::new(stream) }
    }

    /// Whether the server has closed it. What it said before is lost.
    pub(crate) fn has_ended(&mut self) -> bool {
        let stream = self.reader.get_mut();
        stream.set_nonblocking(true).expect("a socket");
        let read = stream.read(&mut [0; 4096]);
        stream.set_nonblocking(false).expect("a socket");
        match read {
            Ok(read) => read == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }

    /// Ends it in a way that the other end sees.
    pub(crate) fn close(self) {
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
    }
}

impl Connection<TcpStream> {
    pub(crate) fn tcp(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { reader: BufReader::new(stream) }
    }
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    /// Sends a request. `headers` are lines with their ends; without a `Host` one is added.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\n\r\n{body}");
        self.send_raw(head.as_bytes());
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        // A server that refuses early may have closed its end.
        let _ = self.reader.get_mut().write_all(bytes);
    }

    /// Sends a line of a body that stays open.
    pub(crate) fn say(&mut self, line: &str) {
        self.send_raw(format!("{:x}\r\n{line}\n\r\n", line.len() + 1).as_bytes());
    }

    /// Sends the end of a body that stayed open.
    pub(crate) fn end_body(&mut self) {
        self.send_raw(b"0\r\n\r\n");
    }

    /// The head of an answer: its status, and whether its body comes in chunks.
    pub(crate) fn head(&mut self) -> (u16, Option<usize>) {
        let first = self.line();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut length = None;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                return (status.unwrap_or_else(|| panic!("no status in {first:?}")), length);
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().ok();
            }
        }
    }

    /// The head of an answer, as it is.
    pub(crate) fn whole_head(&mut self) -> String {
        let mut head = String::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return head;
            }
            head += &line;
            head.push('\n');
        }
    }

    /// A whole answer.
    pub(crate) fn answer(&mut self) -> (u16, Value) {
        let (status, body) = self.text();
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// A whole answer that need not be JSON.
    pub(crate) fn text(&mut self) -> (u16, String) {
        let (status, length) = self.head();
        let mut body = vec![0; length.expect("an answer that is no stream")];
        self.reader.read_exact(&mut body).expect("the body");
        (status, String::from_utf8(body).expect("text"))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    /// The next event of a stream: nothing at its end, or if the server is gone.
    pub(crate) fn event(&mut self) -> Option<Value> {
        self.chunk().map(|chunk| serde_json::from_slice(&chunk).expect("a line of JSON"))
    }

    /// The next chunk of a stream.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut size = String::new();
        match self.reader.read_line(&mut size) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no event in time: {error}"),
        }
        let size = usize::from_str_radix(size.trim_end(), 16).expect("the size of a chunk");
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }
}

/// A stream that holds a lock, or waits for it.
pub(crate) struct Hold {
    pub(crate) connection: Connection<UnixStream>,
    /// The first line.
    pub(crate) first: Value,
}

impl Hold {
    pub(crate) fn new(mut connection: Connection<UnixStream>, name: &str, body: &str) -> Self {
        connection.send("POST", &format!("/v1/locks/{name}"), "", body);
        let (status, length) = connection.head();
        assert!(status == 200 && length.is_none(), "{name} {body}: {status}");
        let first = connection.event().expect("a line");
        Self { connection, first }
    }

    /// With a body that stays open.
    pub(crate) fn opened(mut connection: Connection<UnixStream>, path: &str, body: &str) -> Self {
        let kind = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n";
        connection.send_raw(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n").as_bytes());
        connection.say(body);
        assert_eq!(connection.head(), (200, None), "{path} {body}");
        let first = connection.event().expect("a line");
        Self { connection, first }
    }

    pub(crate) fn event(&mut self) -> Option<Value> {
        self.connection.event()
    }

    /// The next event that is not about waiting or renewal.
    pub(crate) fn outcome(&mut self) -> Value {
        loop {
            let event = self.event().expect("another event");
            if !["waiting", "renewed"].contains(&event["event"].as_str().expect("text")) {
                return event;
            }
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("/v1/holds/{}", self.first["hold"].as_str().expect("a hold"))
    }

    pub(crate) fn token(&self) -> u128 {
        self.first["token"].as_str().expect("text").parse().expect("a number")
    }
}
