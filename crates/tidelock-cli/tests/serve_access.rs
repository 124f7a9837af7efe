//! Who may use `tidelock serve`, and how much of it.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{
    fs::{self, Permissions},
    io::Read,
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixDatagram, UnixListener},
        },
    },
    path::Path,
    process::{Command, Stdio},
};

use common::{
    PATIENCE, output,
    serve::{Connection, Server},
    stderr,
};
use serde_json::json;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn token_file(folder: &Path, mode: u32) -> String {
    let path = folder.join("token");
    fs::write(&path, format!("{TOKEN}\n")).expect("a file");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
    path.display().to_string()
}

/// A server on TCP, and its address.
fn on_tcp() -> (Server, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let token = token_file(folder.path(), 0o600);
    let server = Server::with(&["--listen", "tcp:127.0.0.1:0", "--token-file", &token]);
    let address =
        server.listening["listen"].as_str().and_then(|at| at.strip_prefix("tcp:")).expect("an address");
    let address = address.to_owned();
    (server, address)
}

fn ask(address: &str, headers: &str, body: &str) -> (u16, serde_json::Value) {
    let mut connection = Connection::tcp(address);
    connection.send("POST", "/v1/locks/job", headers, body);
    connection.answer()
}

#[test]
fn only_the_user_can_reach_the_socket() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let socket = folder.path().join("new").join("serve.sock");
    let server = Server::with(&["--listen", &format!("unix:{}", socket.display())]);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().expect("a folder"))), (0o600, 0o700));
    drop(server);
}

#[test]
fn tcp_needs_a_token_that_others_cannot_read_and_an_address_that_they_cannot_reach() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (mode, args, says) in [
        (0o600, vec!["--listen", "tcp:127.0.0.1:0"], "--token-file"),
        (0o644, vec!["--listen", "tcp:127.0.0.1:0", "--token-file"], "chmod 600"),
        (0o600, vec!["--listen", "tcp:0.0.0.0:0", "--token-file"], "could read the token"),
    ] {
        let token = token_file(folder.path(), mode);
        let mut all = vec!["serve", "--url", "memory:"];
        all.extend(&args);
        if args.last() == Some(&"--token-file") {
            all.push(&token);
        }
        let refused = output(&all);
        assert_eq!(refused.status.code(), Some(125), "{args:?}");
        assert!(stderr(&refused).contains(says), "{}", stderr(&refused));
        assert!(!stderr(&refused).contains(TOKEN));
    }
}

#[test]
fn tcp_clients_show_the_token_and_confirm_and_no_web_page_is_served() {
    let (_server, address) = on_tcp();
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let confirm = r#"{"confirm":true,"wait":0}"#;
    for (headers, body, status, kind) in [
        (String::new(), confirm, 401, "unauthorized"),
        ("Authorization: Bearer wrong\r\n".to_owned(), confirm, 401, "unauthorized"),
        (format!("Authorization: Bearer {TOKEN}0\r\n"), confirm, 401, "unauthorized"),
        (format!("Authorization: Basic {TOKEN}\r\n"), confirm, 401, "unauthorized"),
        // Of a user with an empty password.
        ("Authorization: Basic dXNlcjo=\r\n".to_owned(), confirm, 401, "unauthorized"),
        (format!("{bearer}Host: evil.example\r\n"), confirm, 403, "forbidden"),
        (format!("{bearer}Origin: http://localhost\r\n"), confirm, 403, "forbidden"),
        (format!("{bearer}Sec-Fetch-Site: same-origin\r\n"), confirm, 403, "forbidden"),
        (bearer.clone(), "{}", 400, "bad_request"),
    ] {
        let (answered, problem) = ask(&address, &headers, body);
        assert_eq!((answered, &problem["kind"]), (status, &json!(kind)), "{headers:?}: {problem}");
    }
    let mut connection = Connection::tcp(&address);
    connection.send("POST", "/v1/locks/job", &bearer, confirm);
    assert_eq!(connection.head().0, 200);
    assert_eq!(connection.event().expect("a line")["event"], "granted");
}

#[test]
fn a_client_that_sends_its_headers_slowly_is_closed() {
    let server = Server::with(&["--idle", "500ms"]);
    let mut slow = server.connect();
    let mut head =
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'x'));
    // A byte now and then proves nothing: all of it has to come in time.
    common::until("it is closed", || {
        slow.send_raw(&[*head.next().expect("more")]);
        slow.has_ended()
    });
    let mut idle = server.connect();
    idle.send("GET", "/healthz", "", "");
    assert_eq!(idle.answer().0, 200);
    common::until("a kept connection is closed, too", || idle.has_ended());
    // What streams is not idle.
    let mut hold = server.hold("job", r#"{"ttl":"3s"}"#);
    assert_eq!(hold.event().expect("a line")["event"], "renewed");
}

#[test]
fn no_web_page_reaches_the_socket_either() {
    let server = Server::start();
    let mut connection = server.connect();
    connection.send("GET", "/healthz", "Origin: null\r\n", "");
    assert_eq!(connection.answer().0, 403);
}

#[test]
fn what_is_too_much_is_refused_and_others_are_served() {
    let server = Server::with(&["--max-streams-per-client", "2"]);
    // Heads that never end take nothing from others.
    let mut slow: Vec<_> = (0..50).map(|_| server.connect()).collect();
    slow.iter_mut().for_each(|connection| connection.send_raw(b"POST /v1/locks/job HTTP/1.1\r\nHost: lo"));
    let (status, large) =
        server.ask("POST", "/v1/locks/job", &format!(r#"{{"label":"{}"}}"#, "x".repeat(300_000)));
    assert_eq!((status, &large["kind"]), (413, &json!("too_large")));
    let mut connection = server.connect();
    connection.send("GET", "/healthz", &format!("X-Large: {}\r\n", "x".repeat(100_000)), "");
    assert_eq!(connection.head().0, 431);
    let mut connection = server.connect();
    connection.send("GET", "/healthz", &"X-Many: x\r\n".repeat(200), "");
    assert_eq!(connection.head().0, 431);
    let mut connection = server.connect();
    connection.send_raw(b"NONSENSE\r\n\r\n");
    assert_eq!(connection.head().0, 400);
    let holds = ["a", "b"].map(|name| server.hold(name, ""));
    let (status, many) = server.ask("POST", "/v1/locks/c", r#"{"wait":0}"#);
    assert_eq!((status, &many["kind"], &many["retryable"]), (429, &json!("too_many"), &json!(true)));
    let [first, _second] = holds;
    assert_eq!(server.ask("DELETE", &first.path(), "").0, 200);
    common::until("there is room again", || {
        let mut connection = server.connect();
        connection.send("POST", "/v1/locks/c", "", r#"{"wait":0}"#);
        connection.head().0 == 200
    });
}

#[test]
fn systemd_passes_the_socket_and_hears_that_it_is_served() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (socket, notify) = (folder.path().join("passed.sock"), folder.path().join("notify"));
    let listener = UnixListener::bind(&socket).expect("a socket");
    let ready = UnixDatagram::bind(&notify).expect("a socket");
    ready.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let url = format!("file:{}", folder.path().join("locks").display());
    // File 3 is the socket, as systemd passes it; the shell becomes the server, so its id stays.
    let mut server = Command::new("sh")
        .args(["-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve --url \"$1\" 3<&0 </dev/null"])
        .args([env!("CARGO_BIN_EXE_tidelock"), &url])
        .env("NOTIFY_SOCKET", &notify)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut word = [0; 64];
    let read = ready.recv(&mut word).expect("a word in time");
    assert_eq!(&word[..read], b"READY=1");
    let mut connection = Connection::unix(&socket);
    connection.send("GET", "/healthz", "", "");
    assert_eq!(connection.answer().0, 200);
    common::kill(server.id(), rustix::process::Signal::TERM);
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
    assert!(socket.exists(), "systemd listens on");
    let mut said = String::new();
    server.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(said.contains(&format!("unix:{}", socket.display())), "{said}");
}
