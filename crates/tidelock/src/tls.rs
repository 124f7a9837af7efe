//! TLS for stores whose connections are our own: certificates are verified, always.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{
    error::{Error, Result},
    url::TlsFiles,
};

/// What a client needs for TLS. Without authorities of its own it trusts those of the system.
pub(crate) fn client_config(files: &TlsFiles) -> Result<Arc<rustls::ClientConfig>> {
    let bad = |what: &str| {
        Error::invalid_url(format!("the file of the URL's option {what} is not what it should be"))
    };
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
