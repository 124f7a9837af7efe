//! Who may ask: the user of a Unix socket, a token on TCP, and no web page.

use std::{fs::File, io::Read, net::SocketAddr, os::unix::fs::MetadataExt, path::Path};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hyper::{
    Request,
    header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN},
};
use rustix::process::geteuid;

use super::{peer::Peer, problem::Problem};
use crate::output::Trouble;

/// A token has at least this many characters, so that it cannot be guessed.
const MIN_TOKEN: usize = 16;
/// More than any token has.
const MAX_TOKEN: u64 = 4 * 1024;

/// What a client has to show.
pub(super) struct Access {
    token: Option<String>,
    /// The user of this process.
    user: u32,
}

impl Access {
    /// With the token in a file, if there is one.
    pub(super) fn new(token_file: Option<&Path>) -> Result<Self, Trouble> {
        let token = token_file.map(read_token).transpose()?;
        Ok(Self { token, user: geteuid().as_raw() })
    }

    /// Whether it is safe to listen at an address.
    pub(super) fn check_tcp(&self, at: &SocketAddr, has_tls: bool) -> Result<(), Trouble> {
        if self.token.is_none() {
            return Err(Trouble::Usage(format!(
                "every user of this machine could use tcp:{at}: give --token-file, or listen on a Unix socket"
            )));
        }
        if !at.ip().is_loopback() && !has_tls {
            return Err(Trouble::Usage(format!(
                "others could read the token on its way to tcp:{at}: give --tls-cert and --tls-key, or listen \
                 on 127.0.0.1 or [::1]"
            )));
        }
        Ok(())
    }

    /// Whether a request may be answered.
    pub(super) fn check<T>(&self, request: &Request<T>, peer: &Peer) -> Result<(), Problem> {
        let headers = request.headers();
        // A browser sends these for a page; no client of ours does.
        if headers.contains_key(ORIGIN) || headers.contains_key(HeaderName::from_static("sec-fetch-site")) {
            return Err(Problem::forbidden("web pages may not use tidelock: leave out the header Origin"));
        }
        if peer.user.is_some_and(|user| user != self.user && user != 0) {
            return Err(Problem::forbidden("this server belongs to another user"));
        }
        // The socket's mode and its user are enough there.
        if !peer.is_tcp() {
            return Ok(());
        }
        // A page of a name that leads here is as foreign as any other. With TLS, the name is in the certificate.
        if !peer.is_tls() && !headers.get(HOST).and_then(|host| host.to_str().ok()).is_some_and(is_here) {
            return Err(Problem::forbidden(
                "the header Host must name this machine: localhost or its address",
            ));
        }
        let sent = token(headers).ok_or_else(|| {
            Problem::unauthorized("send the token of this server as Authorization: Bearer TOKEN")
        })?;
        match &self.token {
            Some(token) if is_same(&sent, token.as_bytes()) => Ok(()),
            _ => Err(Problem::unauthorized("this is not the token of this server")),
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("has_token", &self.token.is_some()).finish()
    }
}

/// Whether a `Host` names this machine.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The token that a request shows: as it is, or as the password of any user, for programs that know only those.
fn token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, shown) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(shown.trim().as_bytes().to_vec());
    }
    let login =
        scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(shown.trim()).ok()).flatten()?;
    let colon = login.iter().position(|byte| *byte == b':')?;
    Some(login[colon + 1..].to_vec())
}

/// Compares in a time that says nothing about where two texts of one length differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0_u8, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

/// Opens a file that only this user may read.
pub(super) fn check_private(path: &Path, what: &str) -> Result<File, Trouble> {
    let wrong = |why: &str| Trouble::Usage(format!("the file {} {what} {why}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let found = file.metadata()?;
    if found.is_file() && found.mode() & 0o077 != 0 {
        return Err(wrong(&format!("can be read by other users: run chmod 600 {}", path.display())));
    }
    if found.is_file() && found.uid() != geteuid().as_raw() && found.uid() != 0 {
        return Err(wrong("belongs to another user"));
    }
    Ok(file)
}

fn read_token(path: &Path) -> Result<String, Trouble> {
    let wrong = |what: &str| Trouble::Usage(format!("the file {} with the token {what}", path.display()));
    let file = check_private(path, "with the token")?;
    let mut text = String::new();
    let read = file.take(MAX_TOKEN).read_to_string(&mut text);
    read.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let token = text.trim();
    if token.len() < MIN_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("must hold 16 or more characters without spaces: try openssl rand -hex 32"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:7411", "[::1]", "[::1]:7411"] {
            assert!(is_here(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:80", "10.0.0.1", "[::2]", "127.0.0.1.evil"] {
            assert!(!is_here(host), "{host}");
        }
    }

    #[test]
    fn tokens_are_the_same_or_not() {
        assert!(is_same(b"0123456789abcdef", b"0123456789abcdef"));
        for other in ["0123456789abcdeX", "X123456789abcdef", "0123456789abcde", "0123456789abcdef0", ""] {
            assert!(!is_same(b"0123456789abcdef", other.as_bytes()), "{other}");
        }
    }
}
