//! Locks as people read them. Programs read the form that the library gives with its feature `serde`.

use tidelock::backend::{ClaimView, LockView};

use crate::values::Span;

/// Who holds a lock, in a few words: the label of one, and how many more.
pub(crate) fn holders(view: &LockView) -> String {
    match view.holders.as_slice() {
        [] => "nobody".to_owned(),
        [one] => one.label.to_string(),
        [first, more @ ..] => format!("{} and {} more", first.label, more.len()),
    }
}

/// For how long a lock has been held by the one that has held it longest.
pub(crate) fn held_for(view: &LockView) -> String {
    view.holders.iter().map(|holder| holder.age).max().map_or_else(String::new, |age| Span(age).to_string())
}

/// The largest token of those who hold a lock.
pub(crate) fn token(view: &LockView) -> String {
    let token = view.holders.iter().filter_map(ClaimView::token).max();
    token.map_or_else(|| "-".to_owned(), |token| token.to_string())
}
