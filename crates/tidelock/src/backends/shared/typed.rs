//! Typed configs of stores with servers. A config is a URL in parts: its methods set what the URL would say,
//! and both are read by the same code.

/// The config of a store: `$config` for users, `$settings` for the store itself.
macro_rules! typed_config {
    ($(#[$about:meta])* $config:ident reads $settings:ident for $backend:ident of $store:literal, such as $url:literal) => {
        $(#[$about])*
        #[derive(Clone)]
        pub struct $config {
            url: $crate::backends::shared::url::Url,
        }

        impl $config {
            #[doc = concat!("Reads a URL such as `", $url, "`.")]
            ///
            /// # Errors
            /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl); its text never repeats anything that may be
            /// secret.
            pub fn from_url(url: &str) -> $crate::Result<Self> {
                let url = $crate::backends::shared::url::Url::parse(url, $settings::OPTIONS)?;
                $settings::read(url.clone())?;
                Ok(Self { url })
            }

            /// Sets the user to log in as.
            #[must_use]
            pub fn user(mut self, user: impl Into<String>) -> Self {
                self.url.user = Some(user.into());
                self
            }

            /// Sets the password to log in with, as it is: nothing is escaped.
            #[must_use]
            pub fn password(mut self, password: impl Into<String>) -> Self {
                self.url.password = Some(password.into());
                self
            }

            /// Sets a PEM file with the authorities that may sign the server's certificate; implies TLS.
            /// Default: the system's authorities.
            #[must_use]
            pub fn ca_file(self, path: impl AsRef<std::path::Path>) -> Self {
                let mut config = self.tls(true);
                config.url.set_file(&$crate::backends::shared::options::CA, path.as_ref());
                config
            }

            /// Sets PEM files with the client's certificate and key; implies TLS.
            #[must_use]
            pub fn client_cert_files(
                self,
                cert: impl AsRef<std::path::Path>,
                key: impl AsRef<std::path::Path>,
            ) -> Self {
                let mut config = self.tls(true);
                config.url.set_file(&$crate::backends::shared::options::CERT, cert.as_ref());
                config.url.set_file(&$crate::backends::shared::options::KEY, key.as_ref());
                config
            }

            fn set(mut self, option: &$crate::backends::StoreOption, value: impl Into<String>) -> Self {
                self.url.set(option, value.into());
                self
            }

            /// What the store makes of it.
            pub(super) fn settings(&self) -> $crate::Result<$settings, $crate::backend::Failure> {
                self.url
                    .check()
                    .and_then(|()| $settings::read(self.url.clone()))
                    .map_err(|mistake| $crate::backend::Failure::denied(mistake.to_string()))
            }
        }

        impl $crate::backends::target::Config for $config {
            fn connect(
                &self,
                client: $crate::backend::ClientId,
            ) -> $crate::backends::registry::Connecting<'_, dyn $crate::backend::Backend> {
                Box::pin(async move {
                    let settings = self
                        .settings()
                        .map_err(|mistake| $crate::Error::invalid_option(mistake.to_string()))?;
                    $crate::backends::registry::connected($store, $backend::open(settings, client).await)
                })
            }
        }

        impl From<$config> for $crate::Target {
            fn from(config: $config) -> Self {
                Self::config(config)
            }
        }

        impl std::fmt::Debug for $config {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($config)).field(&self.url).finish()
            }
        }
    };
}

pub(crate) use typed_config;
