//! TLS for stores whose connections are our own: certificates are verified, always.

use std::{io, sync::Arc};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    backend::Failure,
    backends::shared::url::TlsFiles,
    error::{Error, Result},
};

/// What a client needs for TLS. Without authorities of its own it trusts those of the system.
pub(crate) fn client_config(files: &TlsFiles) -> Result<Arc<rustls::ClientConfig>> {
    let bad =
        |what: &str| Error::invalid_url(format!("the file of the option {what} is not what it should be"));
    let mut roots = rustls::RootCertStore::empty();
    match &files.ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.map_err(|_| bad("ca"))?).map_err(|_| bad("ca"))?;
            }
        }
        None => {
            // What the system has and rustls cannot read is not trusted; that is all.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid_url(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots);
    let config = match &files.client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>();
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| bad("key"))?;
            builder.with_client_auth_cert(chain.map_err(|_| bad("cert"))?, key).map_err(|_| bad("cert"))?
        }
    };
    Ok(Arc::new(config))
}

/// Encrypts a connection to a host, whose certificate has to be good.
pub(crate) async fn encrypt(
    stream: TcpStream,
    config: &Arc<rustls::ClientConfig>,
    host: &str,
) -> Result<TlsStream<TcpStream>, Failure> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Failure::denied("the host in the URL cannot be in a certificate"))?;
    let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
    connecting.map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(why)) => Failure::denied(format!(
            "the certificate of the server is not valid ({why:?}): correct it or the URL's option ca"
        ))
        .caused_by(error),
        _ => no_tls(error),
    })
}

/// The server was lost before the connection was encrypted.
pub(crate) fn no_tls(error: io::Error) -> Failure {
    Failure::unreachable(format!("no TLS with the server: {error}")).caused_by(error)
}
