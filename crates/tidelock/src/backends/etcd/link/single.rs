//! A transport that connects once.
//!
//! A channel of tonic connects again in silence when its connection has ended. But the server behind the next
//! connection may have been restored from a snapshot in between, and then nothing that was known of the first one
//! counts. So a channel gets one connection, and the link notices when it has ended.

use std::{
    error::Error,
    fmt, mem,
    task::{Context, Poll},
};

use futures_util::future::{self, Either, Ready};
use hyper_util::client::legacy::connect::HttpConnector;
use tonic::codegen::{Service, http::Uri};

type Boxed = Box<dyn Error + Send + Sync>;
type Connecting = <HttpConnector as Service<Uri>>::Future;
type Made = <HttpConnector as Service<Uri>>::Response;

/// Connects to a member, and refuses to do so again.
pub(super) struct Single {
    http: HttpConnector,
    is_used: bool,
}

/// The connection of a channel has ended. What was asked after that was not sent.
#[derive(Debug)]
pub(in crate::backends::etcd) struct Ended;

impl Single {
    pub(super) fn new() -> Self {
        let mut http = HttpConnector::new();
        // tonic adds TLS where the URL asks for it.
        http.enforce_http(false);
        http.set_nodelay(true);
        Self { http, is_used: false }
    }
}

impl Service<Uri> for Single {
    type Response = Made;
    type Error = Boxed;
    type Future = Either<future::ErrInto<Connecting, Boxed>, Ready<Result<Made, Boxed>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        if mem::replace(&mut self.is_used, true) {
            return Either::Right(future::ready(Err(Ended.into())));
        }
        Either::Left(future::TryFutureExt::err_into(self.http.call(to)))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

impl Error for Ended {}
