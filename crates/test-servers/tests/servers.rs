//! Each store alone: it starts, keeps its data over a kill, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "the helpers of the tests fail the test, as the tests do")]

mod common;

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use common::{eventually, leaves_nothing, states};
use test_servers::{
    Error, Etcd, MariaDb, Postgres, Redis, RedisConnection, Server, Zookeeper, packages, running_in,
};

/// Set in the processes that a test starts from this very file.
const INNER: &str = "TEST_SERVERS_INNER";

/// The life of a server: `write` and `read` are arguments for the client of the store.
#[track_caller]
fn survives_kill_and_restart(server: Server, write: &[&str], read: &[&str]) {
    let addr = server.addr();
    server.ping().unwrap();
    server.ask(write).unwrap();

    server.kill().unwrap();
    assert_eq!(running_in(server.folder()), [], "left running after kill");
    assert!(server.ping().is_err(), "a dead server answers");
    assert_eq!(server.pid(), None);
    server.kill().unwrap();

    {
        let _stranger = TcpListener::bind(addr).unwrap();
        server.relaunch().unwrap();
        let error = server.wait_ready().unwrap_err().to_string();
        assert!(error.contains("found its address in use"), "{error}");
    }

    server.restart().unwrap();
    assert_eq!(server.addr(), addr);
    let answer = server.ask(read).unwrap();
    assert!(answer.contains("hello"), "{answer:?} lost its data");
    leaves_nothing(server, |server| vec![server]);
}

/// What a server that flushes nothing forgets with its machine: `set` makes it confirm a word, which `read` says.
#[track_caller]
fn forgets_what_it_was_told_last(server: Server, set: impl Fn(&str) -> Vec<String>, read: &[&str]) {
    let ask = |words: &[String]| server.ask(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    ask(&set("hello"));
    thread::scope(|scope| {
        let loss = scope.spawn(|| server.lose_last_writes(Duration::from_secs(8)));
        eventually("its files are copied", || server.folder().join("before").exists());
        // It stands still until they are.
        ask(&set("other"));
        assert!(server.ask(read).unwrap().contains("other"), "it confirmed it");
        loss.join().unwrap().unwrap();
    });
    let answer = server.ask(read).unwrap();
    assert!(answer.contains("hello") && !answer.contains("other"), "{answer:?}");
    leaves_nothing(server, |server| vec![server]);
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn redis_without_a_flush_forgets_its_last_writes_with_its_machine() {
    let server = Redis::new().append_only().start().unwrap();
    forgets_what_it_was_told_last(server, |word| words(&["SET", "key", word]), &["GET", "key"]);
}

#[test]
fn etcd_without_a_flush_forgets_its_last_writes_with_its_machine() {
    let server = Etcd::new().start().unwrap();
    forgets_what_it_was_told_last(server, |word| words(&["put", "key", word]), &["get", "key"]);
}

#[test]
fn zookeeper_without_a_flush_forgets_its_last_writes_with_its_machine() {
    let server = Zookeeper::new().start().unwrap();
    server.ask(&["create", "/key", "none"]).unwrap();
    forgets_what_it_was_told_last(server, |word| words(&["set", "/key", word]), &["get", "/key"]);
}

#[test]
fn mariadb_without_a_flush_forgets_its_last_writes_with_its_machine() {
    let server = MariaDb::new().option("--innodb-use-native-aio=0").start().unwrap();
    server.ask(&["-e", "CREATE TABLE t (v text) ENGINE=InnoDB"]).unwrap();
    let set = |word: &str| words(&["-e", &format!("DELETE FROM t; INSERT INTO t VALUES ('{word}')")]);
    forgets_what_it_was_told_last(server, set, &["-e", "SELECT v FROM t"]);
}

#[test]
fn every_package_is_installed() {
    assert_eq!(packages::missing(), [""; 0], "install these Debian packages (`cargo xtask test` does)");
}

#[test]
fn redis_keeps_its_data_over_kill_and_restart() {
    let server = Redis::new().append_only().start().unwrap();
    survives_kill_and_restart(server, &["SET", "key", "hello"], &["GET", "key"]);
}

#[test]
fn etcd_keeps_its_data_over_kill_and_restart() {
    let server = Etcd::new().start().unwrap();
    survives_kill_and_restart(server, &["put", "key", "hello"], &["get", "key"]);
}

#[test]
fn zookeeper_keeps_its_data_over_kill_and_restart() {
    let server = Zookeeper::new().start().unwrap();
    survives_kill_and_restart(server, &["create", "/key", "hello"], &["get", "/key"]);
}

#[test]
fn postgres_keeps_its_data_over_kill_and_restart() {
    let server = Postgres::new().start().unwrap();
    let write = "CREATE TABLE t (v text); INSERT INTO t VALUES ('hello')";
    survives_kill_and_restart(server, &["-c", write], &["-c", "SELECT v FROM t"]);
}

#[test]
fn mariadb_keeps_its_data_over_kill_and_restart() {
    let server = MariaDb::new().start().unwrap();
    let write = "CREATE TABLE t (v text) ENGINE=InnoDB; INSERT INTO t VALUES ('hello')";
    survives_kill_and_restart(server, &["-e", write], &["-e", "SELECT v FROM t"]);
}

#[test]
fn a_mariadb_has_a_folder_of_its_own_for_temporary_tables() {
    let server = MariaDb::new().start().unwrap();
    let folder = server.ask(&["-e", "SELECT @@tmpdir"]).unwrap();
    assert!(Path::new(&folder).starts_with(server.folder()), "{folder}");
}

#[test]
fn redis_by_default_forgets_everything_when_it_is_killed() {
    let server = Redis::new().start().unwrap();
    let mut redis = RedisConnection::open(server.addr()).unwrap();
    redis.call(&["SET", "key", "hello"]).unwrap();
    let value = redis.call(&["GET", "key"]).unwrap();
    assert_eq!(value.as_deref(), Some("hello"));

    server.restart().unwrap();
    assert!(redis.call(&["GET", "key"]).is_err(), "the old connection");
    let mut redis = RedisConnection::open(server.addr()).unwrap();
    assert_eq!(redis.call(&["GET", "key"]).unwrap(), None);
}

#[test]
fn redis_with_a_password_lets_only_those_in_who_know_it() {
    let server = Redis::new().password("secret").start().unwrap();
    assert_eq!(server.url(), format!("redis://:secret@{}", server.addr()).as_str());
    let mut redis = RedisConnection::open(server.addr()).unwrap();
    let refused = redis.call(&["PING"]).unwrap_err().to_string();
    assert!(refused.contains("NOAUTH"), "{refused}");
    redis.call(&["AUTH", "secret"]).unwrap();
    redis.call(&["PING"]).unwrap();
    server.ask(&["PING"]).unwrap();
}

#[test]
fn redis_answers_on_its_unix_socket() {
    let server = Redis::new().unix_socket().start().unwrap();
    let mut stream = UnixStream::connect(server.unix_socket().unwrap()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn durable_servers_wait_for_the_disk_and_others_do_not() {
    let flush = |server: &Server| server.ask(&["CONFIG", "GET", "appendfsync"]).unwrap();
    let server = Redis::new().durable().start().unwrap();
    assert!(flush(&server).contains("always"));
    let server = Redis::new().append_only().start().unwrap();
    assert!(flush(&server).contains("no"));

    let fsync = |server: &Server| server.ask(&["-c", "SHOW fsync"]).unwrap();
    assert_eq!(fsync(&Postgres::new().durable().start().unwrap()), "on\n");
    assert_eq!(fsync(&Postgres::new().start().unwrap()), "off\n");

    let select = "SELECT @@innodb_flush_log_at_trx_commit";
    let flush = |server: &Server| server.ask(&["-e", select]).unwrap();
    assert_eq!(flush(&MariaDb::new().durable().start().unwrap()), "1\n");
    assert_eq!(flush(&MariaDb::new().start().unwrap()), "2\n");

    let server = Etcd::new().durable().start().unwrap();
    assert!(!command_line(&server).contains("unsafe-no-fsync"));
    let server = Zookeeper::new().durable().start().unwrap();
    assert!(command_line(&server).contains("forceSync=yes"));
    let server = Zookeeper::new().start().unwrap();
    assert!(command_line(&server).contains("forceSync=no"));
}

fn command_line(server: &Server) -> String {
    let pid = server.pid().unwrap();
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap()
}

/// By how many microseconds a server's clock is ahead, at least and at most.
#[allow(clippy::disallowed_methods, reason = "the clock of the server is compared with the right one")]
fn ahead(server: &Server) -> (i64, i64) {
    let now = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        i64::try_from(now.as_micros()).unwrap()
    };
    let before = now();
    let time = server.ask(&["TIME"]).unwrap();
    let after = now();
    let numbers: Vec<i64> = time.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let time = numbers[0] * 1_000_000 + numbers[1];
    (time - after, time - before)
}

#[test]
fn a_clock_that_runs_fast_gains_and_keeps_what_it_gained() {
    let server = Redis::new().own_clock().start().unwrap();
    assert!(ahead(&server).0 <= 0);
    // Ten times as fast.
    server.set_clock_rate(9_000_000).unwrap();
    eventually("the clock is two seconds ahead", || ahead(&server).0 >= 2_000_000);
    server.set_clock_rate(0).unwrap();
    let (least, most) = ahead(&server);
    assert!(most >= 2_000_000, "it jumped back");
    server.set_clock_rate(-500_000).unwrap();
    eventually("the clock is half a second less ahead", || ahead(&server).1 < least - 500_000);
    // A step is from the right time.
    server.set_clock_rate(0).unwrap();
    server.set_clock_ahead(-5).unwrap();
    assert!(ahead(&server).0 <= -5_000_000);
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    let server = Redis::new().start().unwrap();
    let mut redis = RedisConnection::open(server.addr()).unwrap();
    redis.call(&["PING"]).unwrap();
    server.pause().unwrap();
    assert_eq!(states(server.folder()), ['T']);
    let silence = redis.call(&["PING"]).unwrap_err().to_string();
    assert!(silence.contains("no answer"), "{silence}");
    server.resume().unwrap();
    server.ping().unwrap();

    server.pause().unwrap();
    server.kill().unwrap();
    assert!(server.pause().is_err(), "a dead server cannot pause");
    assert!(server.resume().is_err(), "a dead server cannot go on");
}

/// A client that PostgreSQL serves in a process of its own, outside the group of the server.
fn sleeping_client(server: &Server) -> Child {
    let client = server
        .client()
        .args(["-c", "SELECT pg_sleep(1000)"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    eventually("the query sleeps", || server.ask(&["-c", count]).unwrap() == "1\n");
    client
}

#[test]
fn pause_and_kill_reach_the_workers_of_postgres() {
    let server = Postgres::new().start().unwrap();
    let mut client = sleeping_client(&server);
    server.pause().unwrap();
    let paused = states(server.folder());
    assert!(paused.len() > 2, "{paused:?}");
    assert!(paused.iter().all(|state| *state == 'T'), "{paused:?}");
    server.resume().unwrap();
    server.ping().unwrap();
    server.kill().unwrap();
    assert_eq!(running_in(server.folder()), []);
    assert!(!client.wait().unwrap().success(), "the query was cut off");
    server.restart().unwrap();
}

#[test]
fn killed_postgres_servers_leave_no_shared_memory() {
    let segments = || {
        let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let ids = table.lines().filter_map(|line| line.split_whitespace().nth(1));
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    let server = Postgres::new().start().unwrap();
    let file = server.folder().join("data/postmaster.pid");
    let pid_file = std::fs::read_to_string(file).unwrap();
    let line = pid_file.lines().nth(6).unwrap();
    let id = line.split_whitespace().nth(1).unwrap().to_owned();
    server.kill().unwrap();
    assert!(segments().contains(&id), "the kernel keeps it after a kill");
    drop(server);
    assert!(!segments().contains(&id));
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let (server, task) = thread::spawn(|| {
        let task = std::fs::read_link("/proc/thread-self").unwrap();
        (Redis::new().start().unwrap(), Path::new("/proc").join(task))
    })
    .join()
    .unwrap();
    // A joined thread may not have ended for the kernel yet, which sends the signal at the end.
    eventually("the thread is gone", || !task.exists());
    server.ping().unwrap();
}

#[test]
fn a_failed_start_tells_what_the_server_wrote() {
    let error: Error = Redis::new().password("too many words").start().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("before it served"), "{text}");
    assert!(text.contains("requirepass too many words"), "{text}");
}

/// Runs one ignored test of this file in a process of its own.
fn inner(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "--ignored", "--nocapture", test])
        .env(INNER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn without_its_program_a_start_fails_and_names_the_package() {
    let output = inner("inner_starts_redis").env("PATH", "/nonexistent").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("Debian package redis-"), "{text}");
}

#[test]
#[ignore = "run by without_its_program_a_start_fails_and_names_the_package"]
fn inner_starts_redis() {
    Redis::new().start().unwrap();
}

#[test]
fn servers_die_with_a_test_process_that_is_killed() {
    let mut process = inner("inner_waits_to_be_killed").spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let folders: Vec<_> = lines
        .map_while(Result::ok)
        .filter_map(|line| Some(PathBuf::from(line.split_once("folder ")?.1)))
        .take(3)
        .collect();
    assert_eq!(folders.len(), 3);
    for folder in &folders {
        assert_ne!(running_in(folder), []);
    }
    process.kill().unwrap();
    process.wait().unwrap();
    for folder in &folders {
        eventually("the server of the killed process is dead", || running_in(folder).is_empty());
    }
    // The next process that starts a server clears up.
    assert!(inner("inner_starts_redis").output().unwrap().status.success());
    for folder in &folders {
        assert!(!folder.exists(), "{} is left", folder.display());
    }
}

#[test]
#[ignore = "run by servers_die_with_a_test_process_that_is_killed"]
fn inner_waits_to_be_killed() {
    if env::var_os(INNER).is_none() {
        return;
    }
    let servers =
        [Redis::new().start().unwrap(), Postgres::new().start().unwrap(), MariaDb::new().start().unwrap()];
    for server in &servers {
        println!("\nfolder {}", server.folder().display());
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
