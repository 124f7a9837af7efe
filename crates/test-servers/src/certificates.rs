//! Certificates for servers that speak TLS: an authority, what it signed, and a stranger.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::{Error, Server};

/// What a server with TLS and its clients need, as files in PEM format in the server's folder.
///
/// All servers of a test process trust the same authority, so that they can be replicas of each
/// other.
#[derive(Debug, Clone)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Writes the files into `folder`, which must be there.
    ///
    /// # Errors
    /// When the certificates cannot be made or written.
    pub fn write(folder: &Path) -> Result<Self, Error> {
        // Making keys takes a moment, and tests start many servers.
        static MADE: OnceLock<Result<Vec<(&str, String)>, rcgen::Error>> = OnceLock::new();
        let files = MADE.get_or_init(make).as_ref().map_err(Error::context("no certificates"))?;
        for (name, text) in files {
            fs::write(folder.join(name), text).map_err(Error::context(format!("{name} is not written")))?;
        }
        let written = Self { folder: folder.to_owned() };
        written.show(false)?;
        Ok(written)
    }

    /// Those that were written into `folder` before, if any were.
    pub(crate) fn at(folder: &Path) -> Option<Self> {
        let written = Self { folder: folder.to_owned() };
        written.ca().exists().then_some(written)
    }

    /// The certificate of the authority that clients of the server must trust.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.join(CA)
    }

    /// A certificate of that authority for a client; servers with client authentication ask for it.
    #[must_use]
    pub fn client_cert(&self) -> PathBuf {
        self.folder.join(CLIENT_CERT)
    }

    /// The key of [`client_cert`](Self::client_cert).
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.folder.join(CLIENT_KEY)
    }

    /// The certificate of another authority: it signed nothing here, and who trusts only this one
    /// must refuse the server.
    #[must_use]
    pub fn foreign_ca(&self) -> PathBuf {
        self.folder.join(FOREIGN_CA)
    }

    /// The certificate of a server at 127.0.0.1 and localhost, or one that has expired.
    #[must_use]
    pub fn server_cert(&self, expired: bool) -> PathBuf {
        self.folder.join(if expired { EXPIRED_CERT } else { SERVER_CERT })
    }

    /// The key of both certificates of servers.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.folder.join(SERVER_KEY)
    }

    /// What a server shows: one of [`server_cert`](Self::server_cert), and the key, which some want in the same file.
    pub(crate) fn shown(&self) -> PathBuf {
        self.folder.join(SHOWN)
    }

    /// Replaces what a server shows.
    pub(crate) fn show(&self, expired: bool) -> Result<(), Error> {
        let new = self.folder.join("shown.new");
        let replace = || {
            let key = fs::read_to_string(self.server_key())?;
            fs::write(&new, key + &fs::read_to_string(self.server_cert(expired))?)?;
            // In one step: a server may read it at any moment.
            fs::rename(&new, self.shown())
        };
        replace().map_err(Error::context("the certificate cannot be replaced"))
    }
}

/// Of servers that speak TLS.
impl Server {
    /// Replaces the certificate of a server by one that has expired, or by the right one. Those who connect from now on see
    /// it; those who are connected have seen the other one. A server that cannot be told is started again.
    ///
    /// # Errors
    ///
    /// When the server has no certificate, does not answer, or does not start.
    pub fn show_certificate(&self, expired: bool) -> Result<(), Error> {
        let certificates =
            self.certificates().ok_or_else(|| Error::new(format!("{} has no certificate", self.store())))?;
        certificates.show(expired)?;
        let shown = certificates.shown().display().to_string();
        match self.store() {
            "redis" => self.command(&["CONFIG", "SET", "tls-cert-file", &shown]).map(drop),
            "postgres" => self.ask(&["-c", "SELECT pg_reload_conf()"]).map(drop),
            "mariadb" => self.ask(&["-e", "FLUSH SSL"]).map(drop),
            // It reads the file for each connection.
            "etcd" => Ok(()),
            _ => self.restart(),
        }
    }
}

const CA: &str = "ca.crt";
const FOREIGN_CA: &str = "foreign-ca.crt";
const SERVER_CERT: &str = "server.crt";
const SERVER_KEY: &str = "server.key";
const EXPIRED_CERT: &str = "expired-server.crt";
const SHOWN: &str = "shown.pem";
const CLIENT_CERT: &str = "client.crt";
const CLIENT_KEY: &str = "client.key";

/// Names and contents of all files.
fn make() -> Result<Vec<(&'static str, String)>, rcgen::Error> {
    let (ca, issuer) = authority("tidelock test authority")?;
    let (foreign_ca, _) = authority("foreign test authority")?;
    let server_key = KeyPair::generate()?;
    let client_key = KeyPair::generate()?;

    let server = server_params()?;
    let mut expired = server_params()?;
    expired.not_before = date_time_ymd(2001, 1, 1);
    expired.not_after = date_time_ymd(2002, 1, 1);
    let client = leaf("tidelock test client", &[], ExtendedKeyUsagePurpose::ClientAuth)?;
    Ok(vec![
        (CA, ca),
        (FOREIGN_CA, foreign_ca),
        (SERVER_CERT, server.signed_by(&server_key, &issuer)?.pem()),
        (EXPIRED_CERT, expired.signed_by(&server_key, &issuer)?.pem()),
        (SERVER_KEY, server_key.serialize_pem()),
        (CLIENT_CERT, client.signed_by(&client_key, &issuer)?.pem()),
        (CLIENT_KEY, client_key.serialize_pem()),
    ])
}

fn authority(name: &str) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let mut params = CertificateParams::new([])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok((certificate, Issuer::new(params, key)))
}

fn server_params() -> Result<CertificateParams, rcgen::Error> {
    leaf("tidelock test server", &["127.0.0.1", "localhost"], ExtendedKeyUsagePurpose::ServerAuth)
}

/// What is not an authority. Unless told otherwise it is valid for as long as anybody will care.
fn leaf(
    name: &str,
    hosts: &[&str],
    purpose: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    Ok(params)
}
