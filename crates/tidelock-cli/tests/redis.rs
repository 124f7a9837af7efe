//! Locks in a real Redis server, as a shell sees them.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use common::{Running, json, output, stderr, stdout, tidelock, until};
use rustix::process::Signal;
use test_servers::{Redis, Server};

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo $TIDELOCK_TOKEN; read line";
const PASSWORD: &str = "hunter2";

/// Keys of their own on the server that all tests share. The last one to go stops it.
struct Store {
    _server: Arc<Server>,
    url: String,
}

impl Store {
    fn new() -> Self {
        static SERVER: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let server = shared.upgrade().unwrap_or_else(|| {
            Arc::new(Redis::new().append_only().password(PASSWORD).start().expect("a server"))
        });
        *shared = Arc::downgrade(&server);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { url: format!("{}?prefix=test-{number}:", server.url()), _server: server }
    }

    fn tidelock(&self, args: &[&str]) -> Command {
        let mut command = tidelock(args);
        command.env("TIDELOCK_URL", &self.url);
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.tidelock(args).output().expect("the binary runs")
    }

    fn run(&self, args: &[&str], script: &str) -> Running {
        Running::start(&[&["--url", &self.url], args].concat(), script)
    }

    fn waiters(&self, name: &str) -> usize {
        let lock = json(&["show", name, "--json", "--url", &self.url]);
        lock["waiters"].as_array().expect("a list").len()
    }
}

#[track_caller]
fn is_one_sentence(output: &Output, code: i32, says: &str) {
    let text = stderr(output);
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(code), ""), "{text}");
    assert!(text.starts_with("tidelock: ") && text.contains(says), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
}

#[test]
fn two_runs_wait_for_each_other() {
    let store = Store::new();
    let mut first = store.run(&["job"], HOLD);
    let token: u64 = first.line().parse().expect("a token");
    let mut second = store.run(&["job"], HOLD);
    until("the second waits", || store.waiters("job") == 1);
    is_one_sentence(&store.output(&["run", "job", "--wait", "0", "--", "true"]), 124, "is taken; held by sh");
    first.say("end");
    let next: u64 = second.line().parse().expect("a token");
    assert!(next > token, "{next} after {token}");
    second.say("end");
    assert_eq!((first.end().0, second.end().0), (Some(0), Some(0)));
}

#[test]
fn the_lock_of_a_killed_run_is_free_after_its_ttl() {
    let store = Store::new();
    let ttl = Duration::from_secs(2);
    let mut first = store.run(&["job", "--ttl", "2s"], HOLD);
    first.line();
    let mut second = store.run(&["job"], HOLD);
    until("the second waits", || store.waiters("job") == 1);
    let killed = Instant::now();
    first.signal(Signal::KILL);
    assert_ne!(second.line(), "");
    // Far from the ttl of the second, which would come next; a busy machine has its share.
    let waited = killed.elapsed();
    assert!(waited < ttl + Duration::from_secs(3), "{waited:?}");
}

#[test]
fn a_killed_waiter_is_passed_over() {
    let store = Store::new();
    let mut first = store.run(&["job"], HOLD);
    first.line();
    let second = store.run(&["job", "--ttl", "5m"], HOLD);
    until("the second waits", || store.waiters("job") == 1);
    let mut third = store.run(&["job"], HOLD);
    until("the third waits", || store.waiters("job") == 2);
    second.signal(Signal::KILL);
    // Until it is dead the server has every reason to take it for alive.
    second.end();
    first.say("end");
    // Long before the ttl of the one that was killed.
    let start = Instant::now();
    assert_ne!(third.line(), "");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn break_stops_the_command_at_once_and_tells_why() {
    let store = Store::new();
    let script = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let mut first = store.run(&["job", "--label", "worker-7", "--ttl", "5m"], script);
    assert_eq!(first.line(), "up");
    let mut second = store.run(&["job"], HOLD);
    until("the second waits", || store.waiters("job") == 1);
    let start = Instant::now();
    let broken = store.output(&["break", "job", "--reason", "it hangs since noon"]);
    assert_eq!((broken.status.code(), stderr(&broken).as_str()), (Some(0), ""));
    assert!(stdout(&broken).starts_with("evicted worker-7 from lock \"job\" on redis after "));
    let (code, out, complaints) = first.end();
    assert_eq!((code, out.as_str()), (Some(123), "told\n"));
    assert!(complaints.contains("it hangs since noon"), "{complaints}");
    assert_ne!(second.line(), "");
    // Its next renewal would be after 100 seconds.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_ticket_is_renewed_and_given_back_by_other_processes() {
    let store = Store::new();
    let acquired = store.output(&["acquire", "job", "--ttl", "1m"]);
    assert_eq!((acquired.status.code(), stderr(&acquired).as_str()), (Some(0), ""));
    let ticket = stdout(&acquired).trim_end().to_owned();
    assert_eq!(store.output(&["run", "job", "--wait", "0", "--", "true"]).status.code(), Some(124));
    let renewed = store.output(&["renew", &ticket]);
    assert_eq!(stdout(&renewed), "renewed lock \"job\" on redis for 1m00s\n", "{}", stderr(&renewed));
    let released = store.output(&["release", &ticket]);
    assert_eq!(stdout(&released), "gave back lock \"job\" on redis\n", "{}", stderr(&released));
    for verb in ["renew", "release"] {
        is_one_sentence(&store.output(&[verb, &ticket]), 123, "this ticket does not hold lock \"job\"");
    }
    assert_eq!(store.output(&["run", "job", "--wait", "0", "--", "true"]).status.code(), Some(0));
}

#[test]
fn a_ticket_lapses_with_its_ttl() {
    let store = Store::new();
    let acquired = store.output(&["acquire", "job", "--ttl", "500ms"]);
    let ticket = stdout(&acquired).trim_end().to_owned();
    assert_eq!(store.output(&["run", "job", "--", "true"]).status.code(), Some(0));
    is_one_sentence(&store.output(&["renew", &ticket]), 123, "it lapsed");
}

#[test]
fn ls_and_show_tell_who_holds_and_who_waits() {
    let store = Store::new();
    let mut first = store.run(&["orders/1", "--label", "worker-7", "--owner", "me"], HOLD);
    let mut other = store.run(&["reports/1", "--permits", "2/5"], HOLD);
    let (token, others) = (first.line(), other.line());
    assert!(!token.is_empty() && !others.is_empty());
    let _second = store.run(&["orders/1", "--label", "worker-8"], HOLD);
    until("the second waits", || store.waiters("orders/1") == 1);
    let text = stdout(&store.output(&["ls"]));
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with("orders/1") && lines[1].ends_with(" 1"), "{text}");
    assert!(lines[1].contains(&token) && lines[2].contains(&others), "{text}");
    let listed = json(&["ls", "reports/", "--json", "--url", &store.url]);
    assert_eq!((&listed[0]["name"], &listed[0]["holders"][0]["permits"]), (&"reports/1".into(), &2.into()));
    let text = stdout(&store.output(&["show", "orders/1"]));
    assert!(text.starts_with("lock \"orders/1\" on redis: 1 holder, 1 waiting\n"), "{text}");
    let shown = json(&["show", "orders/1", "--json", "--url", &store.url]);
    let holder = &shown["holders"][0];
    assert_eq!((&holder["label"], &holder["owner"]), (&"worker-7".into(), &"me".into()));
    assert!(shown["token"] == *token && holder["token"] == *token, "{shown}");
    assert_eq!(listed[0]["holders"][0]["token"], *others);
}

#[test]
fn any_name_is_a_lock_of_its_own() {
    let store = Store::new();
    let long = "ü".repeat(256);
    let names = ["{a}", "a", "}{", "%7Ba%7D", "../../etc", "*", "a:c", "it's \"$(x)\" \\ ?", "🔒", &long];
    for name in names {
        let acquired = store.output(&["acquire", "--wait", "0", "--", name]);
        assert_eq!(acquired.status.code(), Some(0), "{name}: {}", stderr(&acquired));
    }
    let listed = json(&["ls", "--json", "--url", &store.url]);
    let mut listed: Vec<_> = listed.as_array().expect("a list").iter().map(|lock| &lock["name"]).collect();
    listed.sort_by_key(|name| name.as_str());
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    for name in names {
        let broken = store.output(&["break", "--reason", "done", "--", name]);
        assert_eq!(broken.status.code(), Some(0), "{name}: {}", stderr(&broken));
    }
    assert_eq!(stdout(&store.output(&["ls", "--json"])), "[]\n");
}

#[test]
fn wrong_urls_get_one_sentence() {
    for (url, says) in [
        ("redis:", "://"),
        ("redis://", "names no host"),
        ("redis+tcp://h", "no store for the URL scheme \"redis+tcp\""),
        ("valkey://h", "no store for the URL scheme \"valkey\""),
        ("redis://me:hunter2@h/zero", "not a number"),
        ("redis://me:hunter2@h?ttl=5", "an option \"ttl\""),
        ("redis+sentinel://me:hunter2@h", "does not name the master"),
    ] {
        is_one_sentence(&output(&["ls", "--url", url]), 125, says);
    }
}

#[test]
fn doctor_finds_a_server_fit_that_keeps_its_data() {
    let store = Store::new();
    let text = store.output(&["doctor"]);
    assert_eq!((text.status.code(), stderr(&text).as_str()), (Some(0), ""), "{}", stdout(&text));
    assert!(stdout(&text).ends_with("fit for locks\n") && !stdout(&text).contains(PASSWORD));
    let found = json(&["doctor", "--json", "--url", &store.url]);
    assert_eq!((&found["abilities"]["store"], &found["problems"]), (&"redis".into(), &serde_json::json!([])));
}

#[test]
fn doctor_says_what_to_fix_about_a_server() {
    let server = Redis::new().config("maxmemory-policy", "volatile-lru").start().expect("a server");
    let text = output(&["doctor", "--url", server.url()]);
    assert_eq!(text.status.code(), Some(1), "{}", stderr(&text));
    for says in ["problem: the server keeps no append-only file", "problem: maxmemory-policy is"] {
        assert!(stdout(&text).contains(says), "{}", stdout(&text));
    }
    assert!(stdout(&text).ends_with("not fit for locks\n"), "{}", stdout(&text));
    server.ask(&["CONFIG", "SET", "maxmemory", "100mb"]).expect("a limit");
    is_one_sentence(&output(&["doctor", "--url", server.url()]), 125, "set maxmemory-policy noeviction");
}

#[test]
fn doctor_says_in_one_sentence_that_a_server_cannot_be_used() {
    let server = Redis::new().password("right").start().expect("a server");
    let wrong = format!("redis://:{PASSWORD}@{}", server.addr());
    is_one_sentence(&output(&["doctor", "--url", &wrong]), 125, "correct the user and password in the URL");
    let nobody = format!("redis://{}", server.addr());
    is_one_sentence(&output(&["doctor", "--url", &nobody]), 125, "correct the user and password in the URL");
    server.kill().expect("it can be killed");
    is_one_sentence(&output(&["doctor", "--url", &wrong]), 125, "redis is not reachable");
}

#[test]
fn a_server_with_tls_is_used_if_its_authority_is_known() {
    let server = Redis::new().append_only().tls().start().expect("a server");
    let certificates = server.certificates().expect("certificates");
    let url = |ca: &std::path::Path| format!("{}?ca={}", server.url(), ca.display());
    let run = |url: &str| output(&["run", "job", "--fail-fast", "--url", url, "--", "true"]);
    let known = run(&url(&certificates.ca()));
    assert_eq!((known.status.code(), stderr(&known).as_str()), (Some(0), ""));
    is_one_sentence(&run(&url(&certificates.foreign_ca())), 125, "certificate");
    is_one_sentence(&run(server.url()), 125, "certificate");
}

#[test]
fn a_line_outlives_a_restart_of_a_server_that_keeps_its_data() {
    let server = Redis::new().durable().start().expect("a server");
    let store = ["--url", server.url(), "--ttl", "20s"];
    let mut first = Running::start(&[&["job"][..], &store].concat(), HOLD);
    let token: u64 = first.line().parse().expect("a token");
    let mut second = Running::start(&[&["job"][..], &store].concat(), HOLD);
    let waits = || json(&["show", "job", "--json", "--url", server.url()])["waiters"][0].is_object();
    until("the second waits", waits);
    server.kill().expect("it can be killed");
    server.restart().expect("it starts again");
    assert!(waits());
    first.say("end");
    let next: u64 = second.line().parse().expect("a token");
    assert!(next > token, "{next} after {token}");
    second.say("end");
    assert_eq!((first.end().0, second.end().0), (Some(0), Some(0)));
}

/// The rules that the page of this store gives to a user, by the name of the user.
fn rules_of_the_page(user: &str) -> String {
    let page = include_str!("../../../docs/backends/redis.md");
    let start = format!("ACL SETUSER {user} on >PASSWORD ");
    let rules: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(&start)).collect();
    assert_eq!(rules.len(), 1, "the page has one line for {user}");
    rules[0].to_owned()
}

/// Everything that a user of locks does.
#[track_caller]
fn can_do_everything(url: &str) {
    let ok = |args: &[&str]| {
        let output = tidelock(args).env("TIDELOCK_URL", url).output().expect("the binary runs");
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{args:?}");
        stdout(&output)
    };
    ok(&["doctor"]);
    ok(&["run", "job", "--permits", "1/2", "--owner", "me", "--", "true"]);
    let ticket = ok(&["acquire", "job"]);
    let mut waits = Running::start(&["job", "--url", url], HOLD);
    until("somebody waits", || {
        json(&["show", "job", "--json", "--url", url])["waiters"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert!(ok(&["ls"]).contains("job"));
    ok(&["renew", ticket.trim_end()]);
    ok(&["release", ticket.trim_end()]);
    assert_ne!(waits.line(), "");
    ok(&["break", "job", "--reason", "done"]);
    assert_eq!(waits.end().0, Some(123));
}

#[test]
fn a_user_with_the_rights_of_the_page_can_do_everything_with_scripts() {
    let rules = rules_of_the_page("locks");
    let server = Redis::new().append_only().user("locks", PASSWORD, &rules).start().expect("a server");
    can_do_everything(&server.url_as("locks", PASSWORD));
}

#[test]
fn a_user_with_the_rights_of_the_page_can_do_everything_with_functions() {
    let rules = rules_of_the_page("locks-functions");
    let server =
        Redis::new().append_only().user("locks-functions", PASSWORD, &rules).start().expect("a server");
    let url = format!("{}?scripting=functions", server.url_as("locks-functions", PASSWORD));
    let early = output(&["run", "job", "--url", &url, "--", "true"]);
    assert_eq!((early.status.code(), stderr(&early).lines().count()), (Some(125), 1), "{}", stderr(&early));
    let library = output(&["schema", "--print", "redis"]).stdout;
    let mut load = server.client();
    load.args(["-x", "FUNCTION", "LOAD", "REPLACE"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut load = load.spawn().expect("redis-cli runs");
    load.stdin.take().expect("a pipe").write_all(&library).expect("it reads");
    let loaded = load.wait_with_output().expect("it ends");
    assert!(loaded.stdout.starts_with(b"tidelock_"), "{}", String::from_utf8_lossy(&loaded.stdout));
    can_do_everything(&url);
}

#[test]
fn a_user_with_the_rights_of_the_page_can_do_everything_in_a_cluster() {
    let rules = rules_of_the_page("locks-cluster");
    let redis = Redis::new().append_only().without_default_user().user("locks-cluster", PASSWORD, &rules);
    let cluster = redis.start_cluster().expect("a cluster");
    can_do_everything(cluster.url());
}

#[test]
fn a_holder_of_redisson_is_shown_and_taken_away_only_after_a_confirmation() {
    let server = Redis::new().append_only().start().expect("a server");
    let (url, key) = (format!("{}?mode=redisson", server.url()), "orders");
    let command = |words: &[&str]| server.command(words).expect("an answer").unwrap_or_default();
    command(&["HSET", key, "8743c9c0-0795-4907-87fd-6c719a6b4586:61", "2"]);
    command(&["PEXPIRE", key, "600000"]);
    let shown = output(&["show", key, "--url", &url]);
    assert!(stdout(&shown).contains("a Redisson client: 8743c9c0"), "{}", stdout(&shown));
    let holder = &json(&["show", key, "--json", "--url", &url])["holders"][0];
    assert_eq!(
        (holder["foreign"]["kind"].as_str(), holder["foreign"]["count"].as_u64()),
        (Some("redisson"), Some(2))
    );
    let doctor = stdout(&output(&["doctor", key, "--url", &url]));
    assert!(doctor.contains("is held by a Redisson client") && doctor.contains("is not told"), "{doctor}");
    let free = stdout(&output(&["doctor", "other", "--url", &url]));
    assert!(free.contains("lock \"other\" is free"), "{free}");

    let words = ["break", key, "--reason", "it hangs", "--url", &url];
    let asked = output(&words);
    assert!(asked.status.code() == Some(1) && stderr(&asked).contains("add --yes"), "{}", stderr(&asked));
    assert_eq!(command(&["EXISTS", key]), "1");
    let broken = output(&[words.as_slice(), &["--yes"]].concat());
    assert!(stdout(&broken).contains("which is not told: it hangs"), "{}", stdout(&broken));
    assert_eq!(command(&["EXISTS", key]), "0");
}

#[test]
fn write_is_the_write_half_of_a_read_write_lock() {
    let server = Redis::new().append_only().start().expect("a server");
    let url = format!("{}?mode=redisson", server.url());
    for (flags, mode) in
        [(["prices", "--write"].as_slice(), "write"), (&["prices", "--shared"], "read"), (&["prices"], "")]
    {
        let mut running = Running::start(&[&["--url", &url], flags].concat(), HOLD);
        running.line();
        let found = server.command(&["HGET", "prices", "mode"]).expect("an answer").unwrap_or_default();
        assert_eq!(found, mode);
        running.say("end");
        assert_eq!(running.end().0, Some(0));
    }
}

#[test]
fn a_command_under_a_fenced_lock_finds_the_token_of_redisson() {
    let store = Store::new();
    let url = format!("{}&mode=redisson&fenced=1", store.url);
    let run = |url: &str| {
        let script = "echo ${TIDELOCK_FOREIGN_TOKEN-none}";
        let mut command = tidelock(["run", "--url", url, "fenced-lock", "--", "sh", "-c", script]);
        // One of a tidelock around this one is not ours.
        stdout(&command.env("TIDELOCK_FOREIGN_TOKEN", "99").output().expect("the binary runs"))
    };
    assert_eq!([run(&url), run(&url)].map(|token| token.trim().to_owned()), ["1", "2"]);
    assert_eq!(run(&store.url).trim(), "none");
    let held = json(&["acquire", "fenced-lock", "--ttl", "30s", "--json", "--url", &url]);
    assert_eq!(held["foreign_token"], "3", "{held}");
}
