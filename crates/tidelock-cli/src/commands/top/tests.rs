//! What is on the screen, in a terminal that is a buffer.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};
use tidelock::{
    Name,
    backend::{Claim as Asking, ClaimId, ClaimView, LockView, Share},
};

use super::{
    draw,
    keys::{Action, press},
    state::{Mode, State},
};
use crate::{
    args::Sort,
    clock::Moment,
    observe::{Asked, Changes, Ending, Event, Health, Lock, News, What},
};

fn now() -> Moment {
    Moment::from_nanos(1_000_000_000_000)
}

fn claim(id: u128, holds: bool, age: u64, left: u64, label: &str) -> ClaimView {
    let name = Name::new("any").unwrap();
    let asking =
        Asking::new(ClaimId::from_u128(id), name, Share::Exclusive, Duration::from_secs(30)).label(label);
    ClaimView::new(&asking, holds.then_some(7), Duration::from_secs(age), Duration::from_secs(left))
}

/// A lock that is held for this long, with this much of its lease left, and this many waiting.
fn lock(name: &str, age: u64, left: u64, waiting: u128) -> Arc<Lock> {
    let mut view = LockView::new(Name::new(name).unwrap(), None, 7);
    view.holders = vec![claim(1, true, age, left, &format!("worker of {name}"))];
    view.waiters = (2..2 + waiting).map(|id| claim(id, false, 3, 30, &format!("waiter {id}"))).collect();
    Arc::new(Lock::new(view, Asked { from: now(), to: now() }, None))
}

fn news(changed: Vec<Arc<Lock>>, events: Vec<Event>) -> News {
    News {
        locks: Changes { is_all: true, changed, ..Changes::default() },
        events: events.into_iter().map(Arc::new).collect(),
        has_missed: false,
        health: Health::default(),
        since: Some(now()),
        now: now(),
        text: OnceLock::new(),
    }
}

fn state(locks: Vec<Arc<Lock>>) -> State {
    let mut state = State::new("redis://127.0.0.1", "", Sort::Name);
    state.take(&news(locks, Vec::new()));
    state
}

fn three() -> State {
    state(vec![lock("orders/2", 60, 20, 0), lock("orders/1", 5, 29, 3), lock("report", 700, 4, 1)])
}

/// What a screen of this size shows, line by line.
fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, state, now())).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn types(state: &mut State, text: &str) -> Action {
    let mut last = Action::Nothing;
    for c in text.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        last = press(state, KeyEvent::new(code, KeyModifiers::NONE));
    }
    last
}

fn names(state: &State) -> Vec<&str> {
    state.rows.iter().map(|lock| lock.name.as_str()).collect()
}

#[test]
fn a_small_screen_shows_every_column_of_every_lock() {
    let shown = screen(&mut three(), 80, 24);
    assert_eq!(shown[0], " tidelock top  redis://127.0.0.1  3 locks, 4 waiting");
    assert!(
        shown[1].starts_with("NAME ▼") && shown[1].contains("HELD BY") && shown[1].contains("TOKEN"),
        "{}",
        shown[1]
    );
    assert!(shown[2].starts_with("orders/1") && shown[2].contains("5s"), "{}", shown[2]);
    assert!(shown[4].starts_with("report") && shown[4].contains("11m40s"), "{}", shown[4]);
    assert!(shown[23].contains("? help") && shown[23].contains("q quit"), "{}", shown[23]);
    assert!(shown.iter().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_large_screen_has_the_pane_beside_the_table_and_a_small_one_below() {
    let mut state = three();
    types(&mut state, "\n");
    let large = screen(&mut state, 200, 50);
    assert!(large[1].contains("NAME") && large[1].contains(" orders/1 "), "{}", large[1]);
    assert!(large[2].contains("holds   worker of orders/1"), "{}", large[2]);
    let small = screen(&mut state, 80, 24);
    let pane = small.iter().position(|line| line.contains(" orders/1 ─")).expect("a pane");
    assert_eq!(pane, 12);
    assert!(small[pane + 1].starts_with("holds   worker of orders/1"), "{}", small[pane + 1]);
    assert!(small[pane + 2].starts_with("    1.  waiter 2"), "{}", small[pane + 2]);
    // Nothing is lost when it is as small as can be.
    for (width, height) in [(1, 1), (3, 2), (20, 5), (300, 4)] {
        screen(&mut state, width, height);
    }
}

#[test]
fn the_bar_drains_with_the_lease() {
    let bars = |left| {
        let line = screen(&mut state(vec![lock("a", 1, left, 0)]), 80, 5)[2].clone();
        (line.matches('█').count(), line.contains('▌'))
    };
    // Its lease is as long as what is left when it is first seen.
    assert_eq!(bars(30), (8, false));
    let mut later = state(vec![lock("a", 1, 32, 0)]);
    let mut terminal = Terminal::new(TestBackend::new(80, 5)).unwrap();
    terminal.draw(|frame| draw::draw(frame, &mut later, now().plus(Duration::from_secs(14)))).unwrap();
    let buffer = terminal.backend().buffer();
    let line: String = (0..80).map(|x| buffer[(x, 2)].symbol()).collect();
    assert_eq!((line.matches('█').count(), line.contains('▌')), (4, true), "{line}");
}

#[test]
fn keys_sort_filter_and_select() {
    let mut state = three();
    assert_eq!(names(&state), ["orders/1", "orders/2", "report"]);
    for (key, order) in [
        ("a", ["report", "orders/2", "orders/1"]),
        ("w", ["orders/1", "report", "orders/2"]),
        ("l", ["report", "orders/2", "orders/1"]),
        ("r", ["orders/1", "orders/2", "report"]),
        ("n", ["orders/1", "orders/2", "report"]),
    ] {
        types(&mut state, key);
        assert_eq!(names(&state), order, "{key}");
    }
    types(&mut state, "/REP");
    assert_eq!((names(&state), state.mode.clone()), (vec!["report"], Mode::Filter));
    assert!(screen(&mut state, 80, 24)[0].contains("1 of 3 locks"));
    types(&mut state, "\u{8}\u{8}\u{8}orders/2\n");
    assert_eq!((names(&state), state.mode.clone()), (vec!["orders/2"], Mode::Normal), "also by holder");
    types(&mut state, "\u{1b}");
    assert_eq!(names(&state).len(), 3);
    types(&mut state, "jj");
    assert_eq!(state.selected.as_ref().map(Name::as_str), Some("report"));
    types(&mut state, "jjk");
    assert_eq!(state.selected.as_ref().map(Name::as_str), Some("orders/2"));
    assert_eq!(types(&mut state, "q"), Action::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    types(&mut state, "/typing");
    assert_eq!(press(&mut state, control_c), Action::Quit);
}

#[test]
fn the_selection_stays_with_its_lock_and_goes_to_a_neighbour_when_that_is_free() {
    let mut state = three();
    types(&mut state, "j");
    state.take(&news(
        vec![lock("a", 1, 30, 0), lock("orders/1", 6, 28, 3), lock("orders/2", 61, 19, 0)],
        Vec::new(),
    ));
    assert_eq!(state.selected.as_ref().map(Name::as_str), Some("orders/2"));
    state.take(&news(vec![lock("a", 1, 30, 0), lock("z", 1, 30, 0)], Vec::new()));
    assert_eq!(state.selected.as_ref().map(Name::as_str), Some("z"));
    state.take(&news(Vec::new(), Vec::new()));
    assert_eq!(state.selected, None);
    assert!(screen(&mut state, 80, 24)[3].contains("No lock is in use."));
}

#[test]
fn ten_thousand_locks_scroll_with_the_selection() {
    let mut state = state((0..10_000).map(|n| lock(&format!("{n:05}"), 1, 30, 0)).collect());
    press(&mut state, KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    let shown = screen(&mut state, 80, 24);
    assert!(shown[22].starts_with("09999"), "{}", shown[22]);
    assert_eq!(state.visible().len(), 21);
    press(&mut state, KeyEvent::new(KeyCode::PageUp, KeyModifiers::NONE));
    press(&mut state, KeyEvent::new(KeyCode::PageUp, KeyModifiers::NONE));
    assert!(screen(&mut state, 80, 24)[2].starts_with("09959"));
}

#[test]
fn a_break_needs_a_reason_and_names_what_it_does() {
    let mut state = three();
    types(&mut state, "b");
    let shown = screen(&mut state, 80, 24).join("\n");
    for part in
        ["Break orders/1?", "Held by worker of orders/1 for", "The first of 3 waiting gets it", "Reason:"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(types(&mut state, " \n"), Action::Nothing);
    assert!(screen(&mut state, 80, 24).join("\n").contains("Say why"));
    types(&mut state, "\u{1b}");
    assert_eq!(state.mode, Mode::Normal);
    let action = types(&mut state, "bit hangs\n");
    let name = Name::new("orders/1").unwrap();
    assert_eq!(
        action,
        Action::Break { name, claims: vec![ClaimId::from_u128(1)], reason: "it hangs".to_owned() }
    );
}

#[test]
fn the_pane_shows_what_happened_with_the_reason() {
    let mut state = three();
    let event = |what| Event {
        serial: 1,
        at: now(),
        after: None,
        name: Name::new("orders/1").unwrap(),
        claim: ClaimId::from_u128(9),
        label: "worker-9".into(),
        what,
    };
    let how = Ending::Evicted { reason: "it hangs".into() };
    let ended = What::Ended { how, held: Some(Duration::from_secs(90)), token: None };
    let locks = vec![lock("orders/1", 5, 29, 0)];
    state.take(&news(locks, vec![event(What::Queued), event(ended)]));
    types(&mut state, "\n");
    let shown = screen(&mut state, 80, 24).join("\n");
    let (evicted, queued) =
        (shown.find("evicted").expect("an event"), shown.find("queued").expect("an event"));
    assert!(evicted < queued && shown.contains("worker-9 after 1m30s: it hangs"), "{shown}");
}

#[test]
fn names_that_move_the_cursor_or_turn_the_text_are_written_out_and_wide_ones_keep_the_columns() {
    let mut state = state(vec![lock("a\u{202e}b", 1, 30, 0), lock("夜间报表", 1, 30, 0)]);
    let shown = screen(&mut state, 80, 24).join("\n");
    assert!(shown.contains("a\\u{202e}b") && !shown.contains('\u{202e}'), "{shown}");
    let plain = draw::plain(&state, now());
    assert!(plain.contains("a\\u{202e}b"), "{plain}");
}

#[test]
fn a_store_that_does_not_answer_is_shown_at_once() {
    let mut state = three();
    let mut lost = news(vec![lock("orders/1", 5, 29, 3)], Vec::new());
    lost.health.error = Some("it is down".into());
    state.take(&lost);
    let shown = screen(&mut state, 120, 24);
    assert!(shown[0].contains("not seen") && shown[0].contains("it is down"), "{}", shown[0]);
    assert!(shown[2].starts_with("orders/1"), "what was seen last stays");
}

#[test]
fn the_help_names_every_key() {
    let mut state = three();
    types(&mut state, "?");
    let shown = screen(&mut state, 80, 24).join("\n");
    for (key, what) in super::keys::KEYS {
        assert!(shown.contains(key) && shown.contains(what), "{key} in {shown}");
    }
    types(&mut state, "x");
    assert_eq!(state.mode, Mode::Normal);
}

/// Part of the next test, which runs it in a terminal of its own.
#[test]
#[ignore = "it takes the terminal and panics"]
fn panic_with_the_screen_taken() {
    let _screen = super::screen::Screen::take().unwrap();
    panic!("as a test wants it");
}

#[test]
fn a_panic_gives_the_terminal_back_before_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let tmux = |args: &[&str]| {
        let mut command = std::process::Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(folder.path().join("tmux")).args(args);
        let output = command.env_remove("TMUX").env("TERM", "xterm-256color").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let test = "commands::top::tests::panic_with_the_screen_taken";
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "cd {}; stty -g > before; {} --ignored --exact {test} --nocapture; stty -g > after; echo ended; cat",
        folder.path().display(),
        program.display()
    );
    tmux(&["new-session", "-d", "-s", "top", "-x", "120", "-y", "40", &script]);
    let mut screen = String::new();
    let limit = Moment::now().plus(Duration::from_secs(30));
    while !screen.contains("ended") && Moment::now() < limit {
        screen = tmux(&["capture-pane", "-p", "-t", "top"]);
    }
    let alternate = tmux(&["display-message", "-p", "-t", "top", "#{alternate_on}"]);
    tmux(&["kill-server"]);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(screen.contains("as a test wants it"), "the panic is told where it can be read: {screen}");
    assert_eq!((read("before"), alternate.trim()), (read("after"), "0"), "{screen}");
}
