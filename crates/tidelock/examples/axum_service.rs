//! A web service that holds a lock for each request: two requests for one account never overlap, in whichever
//! process of the service they are.
//!
//!     cargo run --example axum_service --features redis -- redis://localhost 127.0.0.1:3000
//!     curl -X POST http://127.0.0.1:3000/accounts/7/charge
//!
//! Ctrl-C lets requests finish and releases their locks.

use std::{error::Error, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use tidelock::{ErrorKind, Locks};

/// How long a request waits for its lock: clients of a web service do not wait longer.
const WAIT: Duration = Duration::from_secs(1);
/// How long requests may take to finish after Ctrl-C. Then they lose their locks and stop.
const GRACE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("file:".into());
    let address = args.next().unwrap_or("127.0.0.1:3000".into());

    // One client for all requests. Without a store, a request fails fast instead of waiting.
    let locks = Locks::builder(url).wait(WAIT).fail_fast(true).connect().await?;
    let app = Router::new().route("/accounts/{account}/charge", post(charge)).with_state(locks.clone());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(stop(locks)).await?;
    println!("stopped");
    Ok(())
}

/// Waits for Ctrl-C and shuts the client down. Requests that still come get the answer 503.
async fn stop(locks: Locks) {
    // Without a handler for the signal the service runs until it is killed.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
    locks.shutdown(GRACE).await;
}

async fn charge(State(locks): State<Locks>, Path(account): Path<String>) -> Result<String, Refused> {
    let mutex = locks.mutex(format!("accounts/{account}"));
    // If the client hangs up, the work is dropped and the lock is released.
    mutex
        .try_run(|held| async move {
            tokio::time::sleep(Duration::from_millis(500)).await; // the payment itself
            Ok(format!("charged account {account} with token {}\n", held.token()))
        })
        .await
}

/// The sentence of an error, with the status that says whether to retry.
struct Refused(tidelock::Error);

impl From<tidelock::Error> for Refused {
    fn from(error: tidelock::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self.0.kind() {
            ErrorKind::TimedOut => StatusCode::CONFLICT,
            ErrorKind::Unavailable | ErrorKind::Lost | ErrorKind::Closed => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::InvalidName => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{}\n", self.0)).into_response()
    }
}
