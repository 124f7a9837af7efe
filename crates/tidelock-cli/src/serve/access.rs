//! Who may ask: the user of a Unix socket, a token on TCP, and no web page.

use std::{
    fs::File,
    io::Read,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hyper::{
    Request,
    header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, ORIGIN},
};
use ring::hmac;
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
    /// What a browser shows instead, once: see `page/session.rs`.
    key: Mutex<Option<String>>,
    /// The user of this process.
    user: u32,
}

impl Access {
    /// With the token in a file, if there is one.
    pub(super) fn new(token_file: Option<&Path>) -> Result<Self, Trouble> {
        let token = token_file.map(read_token).transpose()?;
        Ok(Self::with(token))
    }

    fn with(token: Option<String>) -> Self {
        Self { token, user: geteuid().as_raw(), key: Mutex::default() }
    }

    /// With a token that nobody knows, for a server that only a browser uses.
    pub(super) fn of_browser() -> Result<Self, Trouble> {
        Ok(Self::with(Some(random()?)))
    }

    /// A key that a browser may show once, in place of the token.
    pub(super) fn new_key(&self) -> Result<String, Trouble> {
        let key = random()?;
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        Ok(key)
    }

    /// What a browser keeps in a cookie when it has shown the token or the key. It says nothing about the token, and is
    /// the same after a restart of the server with the same token.
    fn session(&self) -> Option<String> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.token.as_ref()?.as_bytes());
        let tag = hmac::sign(&key, b"a session of the page of tidelock serve");
        Some(hex(tag.as_ref()))
    }

    /// Begins a session with the token, or with the key, which is void then.
    pub(super) fn begin_session(&self, shown: &str) -> Option<String> {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let is_key = key.as_ref().is_some_and(|key| is_same(shown.as_bytes(), key.as_bytes()));
        if is_key {
            *key = None;
        }
        let is_token = self.token.as_ref().is_some_and(|token| is_same(shown.as_bytes(), token.as_bytes()));
        (is_key || is_token).then(|| self.session()).flatten()
    }

    /// Whether a browser may see the page's files, which are the same for everybody.
    pub(super) fn check_browser<T>(&self, request: &Request<T>, peer: &Peer) -> Result<(), Problem> {
        self.check_user(peer)?;
        let headers = request.headers();
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        // With TLS, the name is in the certificate.
        let host = text(HOST).filter(|host| peer.is_tls() || is_here(host));
        let host = host.ok_or_else(|| Problem::forbidden("the header Host must name this machine"))?;
        let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, at)| at == host);
        let site = text(HeaderName::from_static("sec-fetch-site"));
        // `none` is an address that somebody typed or opened from outside of the browser.
        let is_foreign = headers.contains_key(ORIGIN) && !text(ORIGIN).is_some_and(is_own)
            || site.is_some_and(|site| site != "same-origin" && site != "none");
        if is_foreign {
            return Err(Problem::forbidden("other web pages may not use tidelock"));
        }
        Ok(())
    }

    /// Whether a browser may see what the page shows. The cookie has the name that is given.
    pub(super) fn check_session<T>(
        &self,
        request: &Request<T>,
        peer: &Peer,
        cookie: &str,
    ) -> Result<(), Problem> {
        self.check_browser(request, peer)?;
        if !peer.is_tcp() {
            return Ok(());
        }
        let cookies = request.headers().get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let shown = pairs.find(|(name, _)| *name == cookie).map(|(_, value)| value);
        match (shown, self.session()) {
            (Some(shown), Some(session)) if is_same(shown.as_bytes(), session.as_bytes()) => Ok(()),
            _ => {
                Err(Problem::unauthorized("sign in with the link of tidelock ui, or with the server's token"))
            }
        }
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
        self.check_user(peer)?;
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

    /// Whether a Unix socket was opened by the user of this server.
    fn check_user(&self, peer: &Peer) -> Result<(), Problem> {
        if peer.user.is_some_and(|user| user != self.user && user != 0) {
            return Err(Problem::forbidden("this server belongs to another user"));
        }
        Ok(())
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

/// Text that nobody can guess.
fn random() -> Result<String, Trouble> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
