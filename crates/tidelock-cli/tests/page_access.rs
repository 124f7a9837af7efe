//! Who may see the page of `tidelock ui` and `tidelock serve`, by requests that no browser would let a page make.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use common::{
    Store,
    page::Server as Ui,
    serve::{Connection, Server},
};

/// All that the page asks its server, and that tells of locks or changes them.
const CALLS: [(&str, &str); 5] = [
    ("GET", "/ui/events"),
    ("GET", "/ui/store"),
    ("GET", "/ui/history?name=a"),
    ("POST", "/ui/focus"),
    ("POST", "/ui/break"),
];

/// A page over TCP: its server, its address and its key.
fn ui(args: &[&str]) -> (Ui, Store, String, String) {
    let store = Store::new();
    let (server, link) = Ui::start(store.tidelock(&[&["ui"], args].concat()));
    let (address, key) =
        link.strip_prefix("http://").and_then(|link| link.split_once("/?key=")).expect("a link with a key");
    (server, store, address.to_owned(), key.to_owned())
}

/// One request, with the host of the address: its status and its head.
fn ask(address: &str, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut connection = Connection::tcp(address);
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    connection.send(method, path, &format!("{host}{headers}"), body);
    let head = connection.whole_head();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head)
}

/// The cookie that a key is exchanged for.
fn cookie(address: &str, key: &str) -> Option<String> {
    let (status, head) = ask(address, "GET", &format!("/?key={key}"), "", "");
    assert_eq!(status, 303);
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie:"))?;
    assert!(line.contains("HttpOnly") && line.contains("SameSite=Strict"), "{line}");
    let value = line.split_once(':')?.1.split(';').next()?;
    Some(format!("Cookie: {}\r\n", value.trim()))
}

#[test]
fn nothing_is_told_without_a_key_and_the_key_works_once() {
    let (_server, _store, address, key) = ui(&[]);
    for (method, path) in CALLS {
        for headers in ["", "Cookie: tidelock-1=x\r\n", &format!("Authorization: Bearer {key}\r\n")] {
            assert_eq!(ask(&address, method, path, headers, "{}").0, 401, "{method} {path} {headers}");
        }
    }
    assert_eq!(ask(&address, "GET", "/v1/locks", "", "").0, 401);
    assert!(cookie(&address, "0123456789abcdef0123456789abcdef").is_none());
    let session = cookie(&address, &key).expect("a cookie");
    assert!(cookie(&address, &key).is_none(), "it works once");
    assert_eq!(ask(&address, "GET", "/ui/store", &session, "").0, 200);
    assert_eq!(ask(&address, "GET", "/ui/events", &session, "").0, 200);
    // The calls of programs are not for browsers.
    assert_eq!(ask(&address, "GET", "/v1/locks", &session, "").0, 401);
}

#[test]
fn other_pages_and_other_hosts_are_refused_even_with_the_cookie() {
    let (_server, _store, address, key) = ui(&["--allow-break"]);
    let session = cookie(&address, &key).expect("a cookie");
    let own = format!("Origin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(
        ask(&address, "POST", "/ui/focus", &format!("{session}{own}"), r#"{"viewer":0,"names":[]}"#).0,
        200
    );
    for foreign in [
        "Host: evil.example\r\n",
        "Host: localhost.evil.example:80\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: http://localhost:3000\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        for (method, path) in CALLS.into_iter().chain([("GET", "/"), ("POST", "/ui/session")]) {
            let (status, _) = ask(&address, method, path, &format!("{session}{foreign}"), "{}");
            assert_eq!(status, 403, "{method} {path} {foreign}");
        }
    }
}

#[test]
fn the_page_may_run_only_its_own_files() {
    let (_server, _store, address, _) = ui(&[]);
    for path in ["/", "/ui/page.js", "/ui/style.css", "/ui/icon.svg"] {
        let (status, head) = ask(&address, "GET", path, "", "");
        assert_eq!(status, 200, "{path}");
        let head = head.to_ascii_lowercase();
        let rules = head.lines().find(|line| line.starts_with("content-security-policy:")).expect("rules");
        assert!(rules.contains("default-src 'none'") && rules.contains("frame-ancestors 'none'"), "{rules}");
        assert!(!rules.contains("unsafe") && !rules.contains('*') && !rules.contains("http"), "{rules}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    }
    assert_eq!(ask(&address, "GET", "/ui/mod.rs", "", "").0, 401, "it is no file of the page");
}

#[test]
fn a_claim_is_broken_only_if_the_server_allows_it_and_for_a_reason() {
    let (_server, _store, address, key) = ui(&[]);
    let session = cookie(&address, &key).expect("a cookie");
    let body = |reason: &str| format!(r#"{{"name":"a","claim":"{}","reason":"{reason}"}}"#, "0".repeat(32));
    assert_eq!(ask(&address, "POST", "/ui/break", &session, &body("it hangs")).0, 403);
    let (_server, _store, address, key) = ui(&["--allow-break"]);
    let session = cookie(&address, &key).expect("a cookie");
    assert_eq!(ask(&address, "POST", "/ui/break", &session, &body(" ")).0, 400);
    assert_eq!(ask(&address, "POST", "/ui/break", &session, &body("it hangs")).0, 404);
}

#[test]
fn the_mode_of_a_socket_is_its_key() {
    let server = Server::start();
    let (status, store) = server.ask("GET", "/ui/store", "");
    assert_eq!((status, &store["may_break"]), (200, &serde_json::json!(false)));
    let mut connection = server.connect();
    connection.send("GET", "/", "", "");
    assert_eq!(connection.head().0, 200);
    let mut connection = server.connect();
    connection.send("GET", "/ui/events", "", "");
    assert_eq!(connection.head(), (200, None));
    // Through a tunnel, other pages could ask it.
    let mut connection = server.connect();
    connection.send("GET", "/ui/store", "Origin: http://evil.example\r\n", "");
    assert_eq!(connection.head().0, 403);
}
