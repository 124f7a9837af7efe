//! The login by SASL with DIGEST-MD5, as ZooKeeper's servers offer it (RFC 2831).

use std::fmt::Write as _;

use md5::{Digest, Md5};

use super::super::{errors::ZkError, settings::Login};

/// What ZooKeeper's own client says it wants to reach.
const URI: &str = "zookeeper/zk-sasl-md5";

/// The answer to a server's challenge.
pub(crate) fn answer(challenge: &[u8], login: &Login, once: u64) -> Result<Vec<u8>, ZkError> {
    let challenge = std::str::from_utf8(challenge).map_err(|_| ZkError::garbled())?;
    let nonce = directive(challenge, "nonce").ok_or_else(|| {
        ZkError::Denied(
            "the server does not offer SASL with DIGEST-MD5, and no other kind is known here".into(),
        )
    })?;
    let realm = directive(challenge, "realm").unwrap_or("zk-sasl-md5");
    let client_nonce = format!("{once:016x}");
    let response = digest(&login.user, &login.password, realm, nonce, &client_nonce, URI);
    let user = login.user.replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!(
        "charset=utf-8,username=\"{user}\",realm=\"{realm}\",nonce=\"{nonce}\",nc=00000001,cnonce=\"{client_nonce}\",digest-uri=\"{URI}\",maxbuf=65536,response={response},qop=auth"
    );
    Ok(text.into_bytes())
}

fn digest(user: &str, password: &str, realm: &str, nonce: &str, once: &str, uri: &str) -> String {
    let secret = Md5::digest(format!("{user}:{realm}:{password}"));
    let mut first = Md5::new();
    first.update(secret);
    first.update(format!(":{nonce}:{once}"));
    let (first, second) = (hex(&first.finalize()), hex(&Md5::digest(format!("AUTHENTICATE:{uri}"))));
    hex(&Md5::digest(format!("{first}:{nonce}:00000001:{once}:auth:{second}")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The value of one directive of a challenge, without its quotes.
fn directive<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = challenge;
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=')?;
        let (value, tail) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => value.split_at(value.find(',').unwrap_or(value.len())),
        };
        if key.trim() == name {
            return Some(value);
        }
        rest = tail.trim_start_matches([',', ' ']);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_comes_out() {
        let response = digest(
            "chris",
            "secret",
            "elwood.innosoft.com",
            "OA6MG9tEQGm2hh",
            "OA6MHXh6VqTrRk",
            "imap/elwood.innosoft.com",
        );
        assert_eq!(response, "d388dad90d4bbd760a152321f2143af7");
    }

    #[test]
    fn a_challenge_is_taken_apart() {
        let challenge = r#"realm="zk,md5",nonce="a=b",qop="auth",charset=utf-8,algorithm=md5-sess"#;
        assert_eq!(directive(challenge, "realm"), Some("zk,md5"));
        assert_eq!(directive(challenge, "nonce"), Some("a=b"));
        assert_eq!(directive(challenge, "algorithm"), Some("md5-sess"));
        assert_eq!(directive(challenge, "none"), None);
    }
}
