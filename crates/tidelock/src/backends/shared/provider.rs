//! The cryptography of drivers that encrypt connections themselves.

use rustls::crypto::{CryptoProvider, ring};

/// Installs a provider for the process, if it has none. For a driver that takes no other: call it right before the first
/// connection, so that the program has had the time to install its own.
pub(crate) fn ensure() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may be faster; then there is one.
        let _ = ring::default_provider().install_default();
    }
}
