//! A web service whose background worker runs on one instance only. Every instance serves requests, and says who leads.
//!
//!     cargo run --example axum_leader --features redis -- redis://localhost 127.0.0.1:3000
//!     cargo run --example axum_leader --features redis -- redis://localhost 127.0.0.1:3001
//!     curl http://127.0.0.1:3001/leader
//!
//! Ctrl-C ends the worker, gives the lead to the other instance, and then stops serving.

use std::{error::Error, time::Duration};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tidelock::{Election, Locks, Term};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("file:".into());
    let address = args.next().unwrap_or("127.0.0.1:3000".into());

    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let locks = Locks::builder(url).ttl(Duration::from_secs(5)).connect().await?;
    let election = locks.election("worker").advertise(format!("http://{address}"));
    let app = Router::new().route("/leader", get(leader)).with_state(election.clone());
    println!("listening on {address}");

    // The service ends when the candidacy has: by Ctrl-C, or because the store refuses.
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async { drop(end.await) }).into_future();
    let candidate = async {
        let outcome = election.lead_until(tokio::signal::ctrl_c(), work).await;
        drop(ended);
        outcome
    };
    let (served, led) = tokio::join!(serving, candidate);
    println!("stopped");
    led?;
    Ok(served?)
}

/// What one instance does in the background. It is dropped when the lead is lost.
async fn work(term: Term) {
    println!("working in term {}", term.token());
    while !term.is_ending() {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {} // one piece of work, with term.token() on each write
            () = term.ending() => {}
        }
    }
}

/// Says where the worker runs.
async fn leader(State(election): State<Election>) -> Result<String, (StatusCode, String)> {
    match election.leader().await {
        Ok(Some(leader)) => Ok(format!("{}\n", leader.advertised.unwrap_or(leader.label))),
        Ok(None) => Err((StatusCode::NOT_FOUND, "nobody leads\n".into())),
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))),
    }
}
