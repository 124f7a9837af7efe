//! `tidelock serve` with TLS, for clients on other machines; and Terraform, which is one.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};

use common::{
    PATIENCE, output,
    serve::{Connection, Server},
    stderr, until,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_servers::Certificates;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A file that only this user can read.
fn private(path: &Path) -> String {
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("its mode");
    path.display().to_string()
}

/// Files for a server, and arguments that name them.
fn files() -> (TempDir, Certificates, Vec<String>) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let certificates = Certificates::write(folder.path()).expect("certificates");
    let token = folder.path().join("token");
    fs::write(&token, TOKEN).expect("a file");
    let args = ["--token-file", &private(&token), "--tls-cert"].map(str::to_owned);
    let tls = [certificates.server_cert(false).display().to_string(), "--tls-key".to_owned()];
    let all = args.into_iter().chain(tls).chain([private(&certificates.server_key())]).collect();
    (folder, certificates, all)
}

/// A server with TLS, its certificates, and its address on this machine.
fn start() -> (Server, TempDir, Certificates, String) {
    let (folder, certificates, args) = files();
    let mut all = vec!["--listen", "tcp:0.0.0.0:0"];
    all.extend(args.iter().map(String::as_str));
    let server = Server::with(&all);
    let at = server.listening["listen"].as_str().and_then(|at| at.rsplit(':').next()).expect("a port");
    let address = format!("127.0.0.1:{at}");
    (server, folder, certificates, address)
}

/// Connects and trusts an authority.
fn connect(address: &str, authority: &Path) -> std::io::Result<Connection<Stream>> {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(authority).expect("a certificate");
    roots.add(trusted).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(tls, tcp);
    stream.flush()?;
    Ok(Connection::over(stream))
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

#[test]
fn clients_of_other_machines_hold_locks_over_tls() {
    let (server, _folder, certificates, address) = start();
    let mut holder = connect(&address, &certificates.ca()).expect("it is trusted");
    let headers = format!("{}Host: locks.example\r\n", bearer());
    holder.send("POST", "/v1/locks/job", &headers, r#"{"confirm":true}"#);
    assert_eq!(holder.head().0, 200);
    assert_eq!(holder.event().expect("a line")["event"], "granted");
    let is_held = || {
        let mut other = connect(&address, &certificates.ca()).expect("it is trusted");
        other.send("GET", "/v1/locks/job", &bearer(), "");
        other.answer().1["holders"] != json!([])
    };
    assert!(is_held());
    // The end of the connection is the end of the hold, as everywhere.
    drop(holder);
    until("it is free", || !is_held());
    drop(server);
}

#[test]
fn a_server_that_is_not_trusted_gets_no_token_and_a_client_without_one_gets_no_lock() {
    let (_server, _folder, certificates, address) = start();
    assert!(connect(&address, &certificates.foreign_ca()).is_err(), "signed by another authority");
    let mut nobody = connect(&address, &certificates.ca()).expect("it is trusted");
    nobody.send("POST", "/v1/locks/job", "", r#"{"confirm":true}"#);
    assert_eq!(nobody.answer().0, 401);
    // Without TLS, nothing is answered.
    let mut plain = TcpStream::connect(&address).expect("the server listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", bearer());
    plain.write_all(head.as_bytes()).expect("it is sent");
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn tls_needs_a_token_and_a_key_that_others_cannot_read() {
    let (_folder, certificates, args) = files();
    let run =
        |args: &[&str]| output(&[&["serve", "--url", "memory:", "--listen", "tcp:0.0.0.0:0"], args].concat());
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let refused = run(&args[2..]);
    assert!(stderr(&refused).contains("--token-file"), "{}", stderr(&refused));
    let refused = run(&args[..4]);
    assert!(stderr(&refused).contains("--tls-key"), "{}", stderr(&refused));
    let mut swapped = args.clone();
    swapped.swap(3, 5);
    fs::set_permissions(certificates.server_cert(false), Permissions::from_mode(0o600)).expect("its mode");
    let refused = run(&swapped);
    assert!(stderr(&refused).contains("cannot be used for TLS"), "{}", stderr(&refused));
    fs::set_permissions(certificates.server_key(), Permissions::from_mode(0o644)).expect("its mode");
    let refused = run(&args);
    assert!(stderr(&refused).contains("chmod 600"), "{}", stderr(&refused));
}

/// What Terraform sends, with its own names.
fn info(id: &str, who: &str) -> String {
    let info = json!({
        "ID": id, "Operation": "OperationTypeApply", "Info": "", "Who": who, "Version": "1.9.8",
        "Created": "2026-11-17T14:00:00.000000Z", "Path": "",
    });
    info.to_string()
}

#[test]
fn terraform_locks_and_unlocks_its_state() {
    let server = Server::start();
    let ask = |method: &str, body: &str| server.ask(method, "/v1/terraform/prod/network?ttl=10m", body);
    let (alice, bob) = (info("6f1f4c0e-aaaa", "alice@laptop"), info("77d2c1aa-bbbb", "bob@ci"));
    assert_eq!(ask("LOCK", &alice).0, 200);
    // Repeated, because the answer was lost.
    assert_eq!(ask("LOCK", &alice).0, 200);
    let (status, held) = ask("LOCK", &bob);
    let expected = json!({"ID": "6f1f4c0e-aaaa", "Operation": "OperationTypeApply", "Who": "alice@laptop"});
    assert_eq!((status, &held), (423, &expected));
    // Everybody else sees it, too: a lock is a lock.
    assert_eq!(server.ask("POST", "/v1/locks/prod/network", r#"{"wait":0}"#).0, 409);
    assert_eq!(ask("UNLOCK", &bob), (409, expected));
    assert_eq!(ask("UNLOCK", &alice).0, 200);
    assert_eq!(ask("UNLOCK", &alice).0, 410, "nobody holds it");
    assert_eq!(ask("LOCK", &bob).0, 200);
    // force-unlock sends nothing.
    assert_eq!(ask("UNLOCK", "").0, 200);
    assert!(!server.is_held("prod/network"));
    for wrong in ["", "{}", "nonsense", r#"{"ID":"a b"}"#] {
        assert_eq!(ask("LOCK", wrong).0, 400, "{wrong}");
    }
}

#[test]
fn a_lock_of_terraform_outlives_its_connection_and_the_server_and_ends_with_its_lease() {
    let mut server = Server::start();
    let lock = |server: &Server, ttl: &str, body: &str| {
        server.ask("LOCK", &format!("/v1/terraform/state?ttl={ttl}"), body)
    };
    assert_eq!(lock(&server, "1h", &info("one", "alice@laptop")).0, 200);
    server.signal(rustix::process::Signal::KILL);
    server.restart();
    let (status, held): (u16, Value) = lock(&server, "1h", &info("two", "bob@ci"));
    assert_eq!((status, &held["ID"]), (423, &json!("one")));
    // Another server unlocks it: all that it needs is in the store.
    assert_eq!(server.ask("UNLOCK", "/v1/terraform/state", &info("one", "alice@laptop")).0, 200);
    assert_eq!(lock(&server, "300ms", &info("two", "bob@ci")).0, 200);
    until("its lease has ended", || lock(&server, "1h", &info("three", "carol")).0 == 200);
}
