//! The proxy in front of a Redis server: each way to break a network, seen from both sides.

#![allow(clippy::unwrap_used, reason = "the helpers of the tests fail the test, as the tests do")]

mod common;

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use common::eventually;
use test_servers::{Error, Proxy, Redis, RedisConnection, Server};

struct Setup {
    server: Server,
    proxy: Proxy,
    /// Goes around the proxy and sees what the server really holds.
    direct: RedisConnection,
    /// Goes through the proxy.
    client: RedisConnection,
}

fn setup() -> Setup {
    let server = Redis::new().start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let direct = RedisConnection::open(server.addr()).unwrap();
    let mut client = RedisConnection::open(proxy.addr()).unwrap();
    client.call(&["PING"]).unwrap();
    Setup { server, proxy, direct, client }
}

impl Setup {
    fn counter(&mut self) -> Option<String> {
        self.direct.call(&["GET", "counter"]).unwrap()
    }

    #[track_caller]
    fn count_through_proxy(&mut self) -> Result<Option<String>, Error> {
        self.client.call(&["INCR", "counter"])
    }

    fn reconnect(&mut self) {
        self.client = RedisConnection::open(self.proxy.addr()).unwrap();
    }
}

/// Whether the error says that the connection was closed, rather than that time ran out.
fn is_closed(result: Result<Option<String>, Error>) -> bool {
    let text = result.unwrap_err().to_string();
    text.contains("closed") || text.contains("reset") || text.contains("Broken pipe")
}

#[test]
fn everything_passes_a_whole_network() {
    let mut setup = setup();
    let long = "x".repeat(1_000_000);
    setup.client.call(&["SET", "long", &long]).unwrap();
    let value = setup.client.call(&["GET", "long"]).unwrap();
    assert_eq!(value.as_deref(), Some(long.as_str()));
    assert_eq!(setup.proxy.replies_lost(), 0);
}

#[test]
fn bytes_arrive_changed_until_the_network_heals() {
    let mut setup = setup();
    setup.proxy.corrupt();
    // The server does not look at the end of a line, which is the last byte. The client does.
    assert!(setup.count_through_proxy().is_err());
    assert_eq!(setup.counter().as_deref(), Some("1"));
    setup.proxy.heal().unwrap();
    setup.reconnect();
    assert_eq!(setup.count_through_proxy().unwrap().as_deref(), Some("2"));
}

#[test]
fn a_connection_that_ends_is_forgotten() {
    let setup = setup();
    let proxy = &setup.proxy;
    assert_eq!(proxy.connections(), 1);
    drop(setup.client);
    eventually("the connection is forgotten", || proxy.connections() == 0);

    let mut client = RedisConnection::open(proxy.addr()).unwrap();
    client.call(&["PING"]).unwrap();
    setup.server.kill().unwrap();
    assert!(is_closed(client.call(&["PING"])), "the client is told");
}

#[test]
fn a_cut_closes_connections_and_refuses_new_ones_until_it_heals() {
    let mut setup = setup();
    setup.proxy.cut();
    assert!(is_closed(setup.count_through_proxy()));
    let refused = TcpStream::connect(setup.proxy.addr()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(setup.counter(), None);

    setup.proxy.heal().unwrap();
    setup.reconnect();
    setup.count_through_proxy().unwrap();
    assert_eq!(setup.counter().as_deref(), Some("1"));
}

#[test]
fn a_disconnect_closes_connections_and_welcomes_new_ones() {
    let mut setup = setup();
    setup.proxy.disconnect();
    assert!(is_closed(setup.count_through_proxy()));
    setup.reconnect();
    setup.count_through_proxy().unwrap();
}

#[test]
fn a_delay_makes_every_answer_later_in_both_directions() {
    let mut setup = setup();
    let delay = Duration::from_millis(150);
    setup.proxy.delay(delay);
    let took = elapsed(|| {
        setup.count_through_proxy().unwrap();
    });
    assert!(took >= 2 * delay, "{took:?}");
    setup.proxy.delay(Duration::ZERO);
    let took = elapsed(|| {
        setup.count_through_proxy().unwrap();
    });
    assert!(took < 2 * delay, "{took:?}");
}

#[allow(
    clippy::disallowed_methods,
    reason = "how long the proxy holds bytes back is seen on a real clock only"
)]
fn elapsed(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}

#[test]
fn held_replies_come_late_while_their_requests_are_applied() {
    let mut setup = setup();
    setup.proxy.hold_replies();
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| setup.client.call(&["INCR", "counter"]));
        eventually("the request is applied", || {
            let value = setup.direct.call(&["GET", "counter"]).unwrap();
            value.as_deref() == Some("1")
        });
        assert!(!answer.is_finished(), "the answer must be held");
        setup.proxy.heal().unwrap();
        answer.join().unwrap()
    });
    assert_eq!(answer.unwrap().as_deref(), Some("1"));
    assert_eq!(setup.proxy.replies_lost(), 0);
}

#[test]
fn held_requests_are_applied_when_the_network_heals() {
    let mut setup = setup();
    setup.proxy.hold_requests();
    let silence = setup.count_through_proxy();
    assert!(!is_closed(silence), "the connection must stay open");
    assert_eq!(setup.counter(), None);
    setup.proxy.heal().unwrap();
    eventually("the late request is applied", || setup.counter().as_deref() == Some("1"));
}

#[test]
fn requests_that_are_stranded_are_applied_when_the_network_heals_and_new_connections_pass() {
    let mut setup = setup();
    setup.count_through_proxy().unwrap();
    setup.proxy.strand();
    let silence = setup.count_through_proxy();
    assert!(!is_closed(silence), "the connection must stay open");
    assert_eq!(setup.proxy.stranded(), 1);
    // Its client has gone away.
    setup.reconnect();
    setup.count_through_proxy().unwrap();
    assert_eq!(setup.counter().as_deref(), Some("2"));
    setup.proxy.heal().unwrap();
    eventually("the late request is answered", || setup.proxy.stranded() == 0);
    assert_eq!(setup.counter().as_deref(), Some("3"));
}

#[test]
fn swallowed_replies_never_come_and_their_connection_is_closed_by_healing() {
    let mut setup = setup();
    setup.proxy.swallow_replies();
    let silence = setup.count_through_proxy();
    assert!(!is_closed(silence), "the connection must stay open");
    assert_eq!(setup.counter().as_deref(), Some("1"));
    assert_eq!(setup.proxy.replies_lost(), 1);
    setup.proxy.heal().unwrap();
    assert!(is_closed(setup.count_through_proxy()));
    assert_eq!(setup.counter().as_deref(), Some("1"));
    setup.reconnect();
    setup.count_through_proxy().unwrap();
}

#[test]
fn a_reply_dropped_once_is_of_a_request_that_was_applied() {
    let mut setup = setup();
    let mut other = RedisConnection::open(setup.proxy.addr()).unwrap();
    setup.proxy.drop_replies_once();
    assert!(is_closed(setup.count_through_proxy()));
    assert_eq!(setup.counter().as_deref(), Some("1"));
    assert_eq!(setup.proxy.replies_lost(), 1);

    other.call(&["PING"]).unwrap();
    setup.reconnect();
    let answer = setup.count_through_proxy().unwrap();
    assert_eq!(answer.as_deref(), Some("2"));
    assert_eq!(setup.proxy.replies_lost(), 1);
}

#[test]
fn a_proxy_serves_again_after_its_server_restarts() {
    let mut setup = setup();
    setup.server.kill().unwrap();
    assert!(is_closed(setup.count_through_proxy()));
    let mut nobody = RedisConnection::open(setup.proxy.addr()).unwrap();
    assert!(is_closed(nobody.call(&["PING"])));
    setup.server.restart().unwrap();
    setup.reconnect();
    setup.count_through_proxy().unwrap();
}

#[test]
fn a_dropped_proxy_gives_its_port_back() {
    let setup = setup();
    let addr = setup.proxy.addr();
    drop(setup.proxy);
    let refused = TcpStream::connect(addr).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}
