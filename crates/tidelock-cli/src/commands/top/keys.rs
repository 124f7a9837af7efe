//! What a key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tidelock::{MAX_OWNER_BYTES, Name, backend::ClaimId};

use super::state::{Asked, Mode, State};
use crate::{args::Sort, clock::Moment};

/// What has to be done outside of the state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Break { name: Name, claims: Vec<ClaimId>, reason: String },
}

/// The keys and what they do, as the help shows them.
pub(super) const KEYS: [(&str, &str); 11] = [
    ("↑ ↓ j k", "select a lock; PgUp PgDn Home End as well"),
    ("Enter", "show or hide the line of the lock and its events"),
    ("n", "sort by name"),
    ("a", "sort by age: held longest first"),
    ("w", "sort by waiting: longest line first"),
    ("l", "sort by time left: least first"),
    ("r", "reverse the order"),
    ("/", "filter by name or holder; Esc removes the filter"),
    ("b", "break the lock; asks for a reason"),
    ("?", "show this help"),
    ("q, Ctrl-C", "quit"),
];

/// Presses a key.
pub(super) fn press(state: &mut State, key: KeyEvent) -> Action {
    state.message = None;
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::Nothing };
    }
    match std::mem::replace(&mut state.mode, Mode::Normal) {
        Mode::Normal => return normal(state, key.code),
        // Any key ends it.
        Mode::Help => {}
        Mode::Filter => filter(state, key.code),
        Mode::Break(asked) => return break_dialog(state, asked, key.code),
    }
    Action::Nothing
}

fn normal(state: &mut State, code: KeyCode) -> Action {
    let page = state.height.max(2) as isize - 1;
    match code {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Char('?') | KeyCode::Char('h') => state.mode = Mode::Help,
        KeyCode::Char('/') => state.mode = Mode::Filter,
        KeyCode::Char('b') => state.ask_to_break(Moment::now()),
        KeyCode::Char('n') => sort(state, Sort::Name),
        KeyCode::Char('a') => sort(state, Sort::Age),
        KeyCode::Char('w') => sort(state, Sort::Waiting),
        KeyCode::Char('l') => sort(state, Sort::Left),
        KeyCode::Char('r') => {
            state.is_reversed = !state.is_reversed;
            state.arrange();
        }
        KeyCode::Up | KeyCode::Char('k') => state.step(-1),
        KeyCode::Down | KeyCode::Char('j') => state.step(1),
        KeyCode::PageUp => state.step(-page),
        KeyCode::PageDown => state.step(page),
        KeyCode::Home => state.select(0),
        KeyCode::End => state.select(usize::MAX),
        KeyCode::Enter => state.has_detail = !state.has_detail,
        KeyCode::Esc if state.filter.is_empty() => state.has_detail = false,
        KeyCode::Esc => {
            state.filter.clear();
            state.arrange();
        }
        _ => {}
    }
    Action::Nothing
}

fn sort(state: &mut State, by: Sort) {
    (state.sort, state.is_reversed) = (by, false);
    state.arrange();
}

fn filter(state: &mut State, code: KeyCode) {
    state.mode = Mode::Filter;
    match code {
        KeyCode::Enter => state.mode = Mode::Normal,
        KeyCode::Esc => {
            state.mode = Mode::Normal;
            state.filter.clear();
        }
        KeyCode::Backspace => {
            state.filter.pop();
        }
        KeyCode::Char(c) => state.filter.push(c),
        _ => {}
    }
    state.arrange();
}

fn break_dialog(state: &mut State, mut asked: Asked, code: KeyCode) -> Action {
    match code {
        KeyCode::Esc => return Action::Nothing,
        KeyCode::Enter if asked.reason.trim().is_empty() => {
            // Without a reason nobody can tell later whether it was right.
            asked.wrong = Some("Say why: the holder is told, and others can read it.");
        }
        KeyCode::Enter => {
            let Asked { name, claims, reason, .. } = asked;
            return Action::Break { name, claims, reason };
        }
        KeyCode::Backspace => {
            asked.reason.pop();
        }
        KeyCode::Char(c) if asked.reason.len() + c.len_utf8() > MAX_OWNER_BYTES => {
            asked.wrong = Some("The reason is as long as it may be.");
        }
        KeyCode::Char(c) if !c.is_control() => {
            asked.reason.push(c);
            asked.wrong = None;
        }
        _ => {}
    }
    state.mode = Mode::Break(asked);
    Action::Nothing
}
