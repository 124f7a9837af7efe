//! Servers that are not what they were: demoted while clients stay connected, with code of others under our names, or
//! talking nonsense in the middle of a connection.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use test_servers::Redis;
use tidelock::{LockState, backends::redis::RedisConfig};

use crate::support::{LONG, NAME, Place, SHORT, eventually, is_one_sentence, within};

trials! {
    a_master_that_is_demoted_grants_nothing_more_to_clients_that_stay_connected,
    a_library_of_our_name_with_other_code_is_never_called,
    functions_of_our_names_in_another_library_are_never_called,
    a_peer_that_talks_nonsense_in_the_middle_of_a_connection_costs_an_error_and_is_left,
}

async fn a_master_that_is_demoted_grants_nothing_more_to_clients_that_stay_connected() {
    for scripting in ["on", "scripts", "off"] {
        let (server, other) = (Redis::new().start().unwrap(), Redis::new().start().unwrap());
        let place = Place::on(server.url()).with(&format!("scripting={scripting}"));
        let (locks, stranger) = (place.connect().await, place.connect().await);
        let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
        stranger.mutex("warm").lock().await.unwrap().release().await.unwrap();
        let port = other.addr().port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
        for n in 0..5 {
            let answer = within("an answer", stranger.mutex(n.to_string()).ttl(SHORT).try_lock()).await;
            let error = answer.map(drop).expect_err("a replica granted a lock");
            is_one_sentence(&error);
            assert!(error.is_unavailable() && error.to_string().contains("replica"), "{scripting}: {error}");
        }
        // Nobody may take the lock while its holder may rely on it, and nobody can renew it.
        within("the holder loses it", guard.lost()).await;
        assert_eq!(guard.state(), LockState::Lost);
        server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let again = within("it is a master again", async {
            loop {
                if let Ok(guard) = stranger.mutex(NAME).ttl(SHORT).lock().await {
                    return guard;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        again.await.release().await.unwrap();
    }
}

/// The name of the library, and that of the function that enters.
fn names() -> (String, String) {
    let code = RedisConfig::function_library();
    let name = code.lines().next().unwrap().strip_prefix("#!lua name=").unwrap().to_owned();
    let version = name.strip_prefix("tidelock_").unwrap();
    let enter = format!("tidelock_enter_{version}");
    assert!(code.contains(&format!("'{enter}'")));
    (name, enter)
}

/// Code that does with the rights of its caller what its author may not.
fn trap(library: &str, function: &str) -> String {
    format!(
        "#!lua name={library}\nredis.register_function('{function}', function(keys, args) redis.call('SET', 'tidelock:stolen', '1') return {{3}} end)"
    )
}

async fn is_not_called(library: &str, says_so: bool) {
    let (name, enter) = names();
    let server = Redis::new().start().unwrap();
    server.command(&["FUNCTION", "LOAD", &trap(library, &enter)]).unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let concern = |concern: &String| concern.contains(&name) && concern.contains("FUNCTION DELETE");
    assert_eq!(locks.concerns().iter().any(concern), says_so, "{:?}", locks.concerns());
    let error = within("it is refused", place.with("scripting=functions").try_connect()).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.is_denied() && error.to_string().contains("FUNCTION LOAD REPLACE"), "{error}");
    assert_eq!(server.command(&["EXISTS", "tidelock:stolen"]).unwrap().as_deref(), Some("0"));
    // What it says helps.
    server.command(&["FUNCTION", "DELETE", library]).unwrap();
    server.command(&["FUNCTION", "LOAD", "REPLACE", &RedisConfig::function_library()]).unwrap();
    let locks = place.with("scripting=functions").connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
}

async fn a_library_of_our_name_with_other_code_is_never_called() {
    is_not_called(&names().0, true).await;
}

async fn functions_of_our_names_in_another_library_are_never_called() {
    is_not_called("elsewhere", false).await;
}

/// Passes everything on, until it is told to say something else instead of what the server answers.
struct Mouth {
    addr: SocketAddr,
    lies: Arc<AtomicBool>,
}

impl Mouth {
    fn start(server: SocketAddr, says: &'static [u8], again_and_again: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, lies) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&lies);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let told = Arc::clone(&told);
                thread::spawn(move || answer(server, client, &told, says, again_and_again));
            }
        });
        Self { addr, lies }
    }
}

fn answer(
    mut server: TcpStream,
    mut client: TcpStream,
    lies: &AtomicBool,
    says: &[u8],
    again_and_again: usize,
) {
    let (mut buffer, mut has_lied) = ([0; 4_096], false);
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let lies = lies.load(Ordering::Relaxed);
        let sent = match (has_lied, lies) {
            (false, false) => client.write_all(&buffer[..length]),
            (false, true) => (0..again_and_again).try_for_each(|_| client.write_all(says)),
            // It says no more on this connection.
            (true, _) => Ok(()),
        };
        has_lied |= lies;
        if sent.is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

async fn a_peer_that_talks_nonsense_in_the_middle_of_a_connection_costs_an_error_and_is_left() {
    let server = Redis::new().start().unwrap();
    let direct = Place::on(server.url());
    let nonsense: &[(&[u8], usize)] = &[
        (b"\x00\x01\x02\xff garbage\r\n", 1),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 1),
        // Half an answer, and nothing more.
        (b"$1000\r\nabc", 1),
        (b"*2\r\n:1\r\n", 1),
        // Lengths that nobody keeps.
        (b"$999999999999\r\nabc", 1),
        (b"*2147483647\r\n:1\r\n", 1),
        (b"%9223372036854775807\r\n", 1),
        // Without end.
        (b"*1\r\n", 100_000),
        (b"+endless", 100_000),
    ];
    for (says, count) in nonsense {
        let mouth = Mouth::start(server.addr(), says, *count);
        let place = direct.through(&format!("redis://{}", mouth.addr));
        let locks = place.connect().await;
        locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
        mouth.lies.store(true, Ordering::Relaxed);
        let asked = Instant::now();
        let answer = within("an answer", locks.mutex(NAME).ttl(SHORT).try_lock()).await;
        let error = answer.map(drop).expect_err("nobody granted it");
        is_one_sentence(&error);
        assert!(error.is_unavailable(), "{error}");
        mouth.lies.store(false, Ordering::Relaxed);
        let told = asked.elapsed();
        let again = within("it goes on when the peer is sane", async {
            loop {
                if let Ok(guard) = locks.mutex(NAME).ttl(SHORT).lock().await {
                    return guard;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        again.await.release().await.unwrap();
        let says = String::from_utf8_lossy(says);
        crate::support::report(&format!("{says:?} × {count}: told after {told:?}, {error}"));
    }
    let free = direct.connect().await;
    eventually("nothing is left behind", || {
        server.command(&["CLIENT", "LIST"]).unwrap().is_some_and(|list| !list.is_empty())
    })
    .await;
    assert!(within("an answer", free.mutex(NAME).try_lock()).await.unwrap().is_some());
}
