//! TLS before TCP clients: what they send is decrypted here, and the rest of the server sees a plain connection.

use std::{io, path::Path, sync::Arc, time::Duration};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsAcceptor;

use super::{access::check_private, shutdown::Running};
use crate::output::Trouble;

/// How long a client has for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The certificate of this server.
#[derive(Clone)]
pub(super) struct Tls(TlsAcceptor);

impl Tls {
    /// Reads a certificate with those that signed it, and its key.
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Self, Trouble> {
        let wrong = |path: &Path, error: &dyn std::fmt::Display| {
            Trouble::Usage(format!("{} cannot be used for TLS: {error}", path.display()))
        };
        check_private(key, "with the key")?;
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(certificate).and_then(|certificates| certificates.collect());
        let chain = chain.map_err(|error| wrong(certificate, &error))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(certificate, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| wrong(certificate, &error))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The plain side of a connection. It ends when the client's side ends, and the other way round.
    pub(super) fn open(&self, client: TcpStream, tasks: &Running) -> io::Result<UnixStream> {
        let (plain, mut other) = UnixStream::pair()?;
        let acceptor = self.0.clone();
        tasks.spawn(async move {
            // A client that does not speak TLS, or does not trust the certificate, is dropped without a word.
            let Ok(Ok(mut client)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(client)).await else {
                return;
            };
            let _ = copy_bidirectional(&mut client, &mut other).await;
        });
        Ok(plain)
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}
