//! What a session does with a server that is slow.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    super::settings::ZookeeperSettings,
    session::{Session, Watcher},
    wire::{Change, Request, Stat},
};
use crate::backends::shared::url::Url;

struct Nobody;

impl Watcher for Nobody {
    fn watched(&self, _: u64, _: &str, _: Option<Stat>, _: u64) {}
    fn changed(&self, _: u64, _: Change, _: &str) {}
    fn resumed(&self, _: u64) {}
    fn expired(&self, _: u64) {}
}

/// The session's timeout. A connection on which nothing is answered for two thirds of it is cut.
const TIMEOUT: Duration = Duration::from_secs(6);

async fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn send(stream: &mut TcpStream, frame: &[u8]) {
    let length = i32::try_from(frame.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes(), frame].concat()).await.unwrap();
}

/// Greets one client, and answers each of its questions after this pause.
async fn serve_slowly(listener: TcpListener, pause: Duration) {
    let (mut stream, _) = listener.accept().await.unwrap();
    receive(&mut stream).await.unwrap();
    let timeout = i32::try_from(TIMEOUT.as_millis()).unwrap();
    let greeting = [&0_i32.to_be_bytes()[..], &timeout.to_be_bytes(), &1_i64.to_be_bytes()].concat();
    send(&mut stream, &[&greeting[..], &16_i32.to_be_bytes(), &[7; 16]].concat()).await;
    while let Some(request) = receive(&mut stream).await {
        tokio::time::sleep(pause).await;
        send(&mut stream, &[&request[..4], &1_i64.to_be_bytes(), &0_i32.to_be_bytes()].concat()).await;
    }
}

/// Cut off, it would have to answer all of them again, and would be cut off again.
#[tokio::test]
async fn a_server_that_answers_one_question_after_the_other_is_not_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("zookeeper://{}", listener.local_addr().unwrap());
    let server = serve_slowly(listener, TIMEOUT / 8);
    let url = Url::parse(&url, ZookeeperSettings::OPTIONS).unwrap();
    let settings = Arc::new(ZookeeperSettings::read(url).unwrap());
    let session = Session::new(1, settings, TIMEOUT, 0, Arc::new(Nobody));
    // Together they take longer than a connection may be silent.
    let questions: Vec<_> = (0..8).map(|_| session.ask(Request::sync("/"))).collect();
    let asking = async {
        for question in questions {
            question.await.unwrap();
        }
    };
    tokio::select! {
        () = asking => assert_eq!(session.connections(), 1),
        () = server => panic!("the connection was cut"),
    }
}
