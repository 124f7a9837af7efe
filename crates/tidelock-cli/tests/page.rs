//! The page of `tidelock ui` and `tidelock serve` in a real browser.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use common::{
    Store,
    browser::{Browser, DOWN, END, ENTER, ESCAPE},
    page::{NAMES, Page, Server},
    tidelock,
};
use serde_json::json;

/// The lock that is open in the panel, holders and waiters by their labels.
const LINE: &str = "[...document.querySelectorAll('.claims li')]\
    .map((claim) => `${claim.className} ${claim.querySelector('.who').textContent}`).join(', ')";

#[test]
fn locks_appear_and_age_a_waiter_moves_up_and_they_go() {
    let page = Page::open(&[]);
    let browser = &page.browser;
    browser.until("document.getElementById('empty').innerText === 'No lock is in use.'");
    let first = page.hold("orders/42", "worker-1");
    browser.until(&format!("{NAMES} === 'orders/42'"));
    assert_eq!(browser.text(".rows .holder"), "worker-1");
    // It ages, and its lease is renewed and drains.
    let held = browser.text(".rows .held");
    browser.until(&format!("document.querySelector('.rows .held').innerText !== {held:?}"));
    let second = page.wait("orders/42", "worker-2");
    browser.until("document.querySelector('.rows .waiting').innerText === '1'");
    browser.click(".rows .row");
    browser.until(&format!("{LINE} === 'holds worker-1, waits worker-2'"));
    assert_eq!(browser.js("document.querySelectorAll('.queue .person').length"), 2);
    first.end();
    browser.until(&format!("{LINE} === 'holds worker-2'"));
    browser.until("[...document.querySelectorAll('.events li')].some((event) => /granted.*worker-2.*waited/s.test(event.innerText))");
    second.end();
    browser.until("document.querySelectorAll('.rows .row').length === 0");
    browser.until("document.querySelector('.detail .facts').innerText.startsWith('Free')");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Gives a field another value, as a person does.
fn choose(browser: &Browser, id: &str, value: &str, event: &str) {
    let field = format!("document.getElementById({id:?})");
    browser.js(&format!("({field}.value = {value:?}, {field}.dispatchEvent(new Event({event:?})))"));
}

#[test]
fn locks_are_filtered_sorted_grouped_and_reached_by_keyboard() {
    let page = Page::open(&[]);
    let browser = &page.browser;
    let names = ["orders/2", "orders/10", "mail/1", "deploy"];
    let _holders = names.map(|name| page.hold(name, &format!("by-{name}")));
    let _waiter = page.wait("mail/1", "patient");
    browser.until(&format!("{NAMES} === 'deploy mail/1 orders/2 orders/10'"));
    browser.js("(document.activeElement.blur(), 1)");
    browser.keys("/");
    browser.keys("orders/*");
    browser.until(&format!("{NAMES} === 'orders/2 orders/10'"));
    assert_eq!(browser.text("#count"), "2 of 4 locks");
    browser.keys(ENTER);
    browser.keys(DOWN);
    browser.keys(ENTER);
    browser.until("document.querySelector('.detail h2')?.innerText === 'orders/10'");
    browser.keys(ESCAPE);
    browser.until("document.getElementById('detail').hidden");
    choose(browser, "filter", "", "input");
    choose(browser, "sort", "age", "change");
    browser.until(&format!("{NAMES} === 'orders/2 orders/10 mail/1 deploy'"));
    choose(browser, "sort", "waiting", "change");
    browser.until(&format!("{NAMES} === 'mail/1 deploy orders/2 orders/10'"));
    browser.type_into("#filter", "patient");
    browser.until(&format!("{NAMES} === 'mail/1'"));
    browser.type_into("#filter", "x");
    browser.until("document.getElementById('empty').innerText === 'No lock fits the filter.'");
    choose(browser, "filter", "", "input");
    choose(browser, "sort", "name", "change");
    browser.click("#grouped");
    browser.until("[...document.querySelectorAll('.group')].map((group) => group.innerText.replace(/\\s+/g, ' ')).sort().join('; ') === 'mail/ 1 lock · 1 waits; no prefix 1 lock; orders/ 2 locks'");
    browser.js("([...document.querySelectorAll('.group')].find((group) => group.innerText.startsWith('orders')).click(), 1)");
    browser.until(&format!("{NAMES} === 'deploy mail/1'"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_break_with_its_reason_reaches_the_holder_and_the_history() {
    let page = Page::open(&["--allow-break"]);
    let browser = &page.browser;
    let holder = page.hold("deploy", "ci-runner-3");
    let mut next = page.wait("deploy", "ci-runner-4");
    browser.click(".rows .row");
    browser.click(".claims .holds .button");
    browser.until("document.getElementById('break-dialog').open");
    let says = browser.text("#break-dialog");
    for part in
        ["deploy", "ci-runner-3", "held it for", "is told that the lock is lost", "ci-runner-4 is next"]
    {
        assert!(says.contains(part), "{part:?} in {says:?}");
    }
    // Without a reason, the browser does not send it.
    browser.click("#break-dialog button[type=submit]");
    assert_eq!(browser.js("document.getElementById('break-dialog').open"), json!(true));
    browser.type_into("#reason", "hangs since noon");
    browser.keys(ENTER);
    browser.until("!document.getElementById('break-dialog').open");
    assert_eq!(next.line(), "held");
    let (code, _, complaints) = holder.end();
    assert_eq!(code, Some(123), "{complaints}");
    assert!(complaints.contains("hangs since noon"), "{complaints}");
    browser.until(&format!("{LINE} === 'holds ci-runner-4'"));
    browser.until("[...document.querySelectorAll('.events li')].some((event) => /evicted.*ci-runner-3.*hangs since noon/s.test(event.innerText))");
    browser.until("document.querySelector('.timeline .cross')");
    browser.until(
        "document.querySelector('.timeline .why').textContent.startsWith('evicted: hangs since noon')",
    );
}

#[test]
fn a_page_that_may_only_show_has_no_way_to_break() {
    let page = Page::open(&[]);
    let _holder = page.hold("deploy", "ci-runner-3");
    page.browser.click(".rows .row");
    page.browser.until(&format!("{LINE} === 'holds ci-runner-3'"));
    assert_eq!(page.browser.js("document.querySelectorAll('.claims .button:not([hidden])').length"), 0);
    let refused = "fetch('/ui/break', {method: 'POST', body: JSON.stringify({name: 'deploy', claim: '0'.repeat(32), reason: 'x'})}).then((answer) => answer.status)";
    assert_eq!(page.browser.js(refused), 403);
}

#[test]
fn the_page_says_at_once_that_its_server_is_gone_and_heals_when_it_is_back() {
    let store = Store::new();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef0123456789abcdef\n").expect("a file");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("its mode");
    let serve = |listen: &str| {
        let token = token.display().to_string();
        Server::start(store.tidelock(&["serve", "--listen", listen, "--token-file", &token]))
    };
    let (mut server, line) = serve("tcp:127.0.0.1:0");
    let listening: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let listen = listening["listen"].as_str().expect("an address").to_owned();
    let browser = Browser::start();
    browser.open(&listen.replace("tcp:", "http://"));
    // It asks for the token, and remembers it across a restart.
    browser.until("document.getElementById('sign-in').open");
    browser.type_into("#key", "wrong");
    browser.keys(ENTER);
    browser.until("document.querySelector('#sign-in .error').innerText.includes('not the token')");
    browser.js("(document.getElementById('key').value = '', 1)");
    browser.type_into("#key", "0123456789abcdef0123456789abcdef");
    browser.keys(ENTER);
    let state = |word: &str| format!("document.getElementById('state').dataset.state === {word:?}");
    browser.until(&state("live"));
    let mut first = store.run(&["a", "--label", "before"], "echo held; read line");
    first.line();
    browser.until(&format!("{NAMES} === 'a'"));
    server.kill();
    browser.until(&state("lost"));
    assert!(browser.text("#banner").starts_with("Connection to the server lost."));
    let mut second = store.run(&["b", "--label", "after"], "echo held; read line");
    second.line();
    let (_server, _) = serve(&listen);
    browser.until(&state("live"));
    browser.until(&format!("{NAMES} === 'a b'"));
    assert_eq!(browser.js("document.getElementById('banner').hidden"), json!(true));
}

#[test]
fn names_and_labels_of_others_run_nothing_and_keep_the_layout() {
    let page = Page::open(&[]);
    let browser = &page.browser;
    let script = "<script>window.taken=1</script>";
    let image = "<img src=x onerror=window.taken=1>";
    let long = "x".repeat(512);
    let turned = "pay\u{202e}gpj.exe";
    let arabic = "قفل/الطلبات";
    let holders = [script, image, &long, turned, arabic]
        .map(|name| page.hold(name, &format!("{image}\u{202e}{}", "y".repeat(60))));
    browser.until(&format!("document.querySelectorAll('.rows .row').length === {}", holders.len()));
    assert!(browser.js(NAMES).as_str().expect("text").contains("pay⟨U+202E⟩gpj.exe"));
    for (width, height) in [(1_280, 860), (360, 640)] {
        browser.size(width, height);
        let name = serde_json::to_string(&long).expect("text");
        browser.js(&format!("(location.hash = 'lock=' + encodeURIComponent({name}), 1)"));
        browser.until("document.querySelector('.detail h2')?.innerText.startsWith('xxx')");
        assert_eq!(browser.js("document.documentElement.scrollWidth - innerWidth"), 0, "{width} wide");
        assert_eq!(browser.js("document.querySelector('.detail').scrollWidth - document.querySelector('.detail').clientWidth"), 0);
        browser.js("(location.hash = '', 1)");
    }
    assert_eq!(browser.js("typeof window.taken"), "undefined");
    assert_eq!(browser.js("document.querySelectorAll('main script, main img').length"), 0);
    assert_eq!(browser.complaints(), [""; 0], "nothing was tried that the rules of the page forbid");
}

#[test]
fn nothing_moves_when_numbers_change() {
    let page = Page::open(&[]);
    let browser = &page.browser;
    let _holders = ["a", "b"].map(|name| page.hold(name, "worker"));
    browser.until(&format!("{NAMES} === 'a b'"));
    let places = "JSON.stringify([...document.querySelectorAll('.rows .row > *, .figures dd, .tools > *')].map((cell) => { \
        const box = cell.getBoundingClientRect(); return [box.left, box.top, box.width, box.height].map(Math.round); }))";
    let before = browser.js(places);
    // From one digit to two.
    browser.until("parseInt(document.querySelector('.rows .held').innerText) >= 10");
    assert_eq!(browser.js(places), before);
}

#[test]
fn ten_thousand_locks_are_shown_by_a_few_rows() {
    let redis = test_servers::Redis::new().start().expect("a server");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = redis.url().to_owned();
    let (locks, guards) = runtime.block_on(async {
        let locks = tidelock::Locks::connect(&url).await.expect("the store");
        let mut guards = Vec::new();
        for number in 0..10_000 {
            let name = format!("orders/{number:05}");
            guards.push(
                locks.mutex(name).ttl(std::time::Duration::from_secs(600)).lock().await.expect("it is free"),
            );
        }
        (locks, guards)
    });
    let (_server, link) = Server::start(tidelock(["ui", "--url", &url]));
    let browser = Browser::start();
    browser.open(&link);
    browser.until("document.getElementById('count').innerText === '10,000 locks'");
    browser.until("document.querySelector('.rows .name').innerText === 'orders/00000'");
    assert!(browser.js("document.querySelectorAll('.rows .row').length").as_u64().expect("a number") < 60);
    browser.js("(document.getElementById('scroller').focus(), 1)");
    browser.keys(END);
    browser.until(
        "[...document.querySelectorAll('.rows .name')].some((name) => name.innerText === 'orders/09999')",
    );
    assert!(browser.js("document.querySelectorAll('.rows .row').length").as_u64().expect("a number") < 60);
    browser.type_into("#filter", "orders/0777*");
    browser.until("document.getElementById('count').innerText === '10 of 10,000 locks'");
    drop((guards, locks));
}

#[test]
fn a_narrow_and_a_dark_window_show_the_same() {
    let page = Page::open(&[]);
    let browser = &page.browser;
    let _holder = page.hold("orders/42", "worker-1");
    browser.until(&format!("{NAMES} === 'orders/42'"));
    let light = browser.js("getComputedStyle(document.body).backgroundColor");
    browser.colours("dark");
    assert_ne!(browser.js("getComputedStyle(document.body).backgroundColor"), light);
    browser.size(360, 640);
    browser.until("document.querySelector('.rows .row').getBoundingClientRect().height === 64");
    for hash in ["", "lock=orders%2F42", "store"] {
        browser.js(&format!("(location.hash = {hash:?}, 1)"));
        browser.until(match hash {
            "" => "!document.getElementById('locks-view').hidden",
            "store" => "document.querySelectorAll('.store section').length === 4",
            _ => "document.querySelector('.detail .person')",
        });
        assert_eq!(browser.js("document.documentElement.scrollWidth - innerWidth"), 0, "{hash:?}");
    }
    browser.until("document.querySelector('.store').innerText.includes('No problems found.')");
}

/// Writes the pictures of the documentation.
#[test]
#[ignore = "cargo xtask screenshots runs it: it writes into docs/images"]
fn screenshots() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    fs::create_dir_all(&folder).expect("a folder");
    let page = Page::of(Store::named("shop"), &["--allow-break"]);
    let browser = &page.browser;
    let write = |name: &str| browser.screenshot(&folder.join(format!("{name}.png")));
    let mut holders: Vec<_> =
        (1..=12).map(|n| page.hold(&format!("orders/{}", 4_700 + n), &format!("worker-{n}"))).collect();
    holders.push(page.hold("deploy/production", "ci-runner-3 (job 8812)"));
    holders.push(page.hold("reports/nightly", "cron@batch-1"));
    let hang = page.hold("orders/4711/refund", "worker-7");
    let mut waiters: Vec<_> =
        (8..=11).map(|n| page.wait("orders/4711/refund", &format!("worker-{n}"))).collect();
    for n in 1..=2 {
        let mut blender = page.store.run(
            &["licenses/render", "--permits", "2/5", "--label", &format!("blender-{n}")],
            "echo held; read line",
        );
        blender.line();
        holders.push(blender);
    }
    browser.until("document.getElementById('count').innerText === '16 locks'");
    write("page-locks");
    browser.js("(location.hash = 'lock=orders%2F4711%2Frefund', 1)");
    browser.click(".claims .holds .button");
    browser.type_into("#reason", "hangs since noon, see ticket 4711");
    write("page-break");
    browser.keys(ENTER);
    browser.until("document.querySelector('.timeline .cross')");
    hang.end();
    waiters[0].line();
    waiters.remove(0).end();
    waiters[0].line();
    browser.until(&format!("{LINE}.startsWith('holds worker-9')"));
    write("page-lock");
    browser.colours("dark");
    write("page-lock-dark");
    browser.js("(location.hash = 'store', 1)");
    browser.until("document.querySelectorAll('.store section').length === 4");
    browser.colours("light");
    write("page-store");
    browser.js("(location.hash = '', 1)");
    browser.size(360, 720);
    browser.until("document.querySelector('.rows .row')?.getBoundingClientRect().height === 64");
    write("page-narrow");
}
