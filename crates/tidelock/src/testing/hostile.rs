//! Everything that reads bytes from outside, for fuzzing: whatever the bytes are, no reader may panic, hang or use
//! memory without bound.
//!
//! `tests/hostile_input` plays the kept inputs and variations of them; `fuzz/` searches for new ones.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use crate::{
    Name, Period, Ticket, Token,
    backend::{Ask, Claim, ClaimId, ClientId, Leave, Share},
    backends::registry,
    clock::Moment,
    model::line::{Line, StoreTime},
};

/// A reader of bytes that anybody may have written.
#[derive(Clone, Copy)]
pub struct Reader {
    /// Its name, which is also that of the folder of its kept inputs.
    pub name: &'static str,
    /// Reads the bytes. What comes of it does not matter.
    pub read: fn(&[u8]),
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&self.name).finish()
    }
}

/// All readers of this build.
pub fn readers() -> Vec<Reader> {
    let general = [Reader { name: "url", read: urls }, Reader { name: "text", read: texts }];
    let of_stores = registry::stores().iter().flat_map(|store| store.readers);
    general.iter().chain(of_stores).copied().collect()
}

/// URLs, by every store.
fn urls(bytes: &[u8]) {
    let Ok(url) = std::str::from_utf8(bytes) else { return };
    for store in registry::stores() {
        let _ = (store.read_url)(url);
    }
}

/// What people and programs hand over as text: names, tickets, tokens, slots. What is read is written as it was.
fn texts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = Name::new(text) {
        assert_eq!(name.as_str(), text);
        use_line(&name, Line::default());
    }
    if let Ok(ticket) = Ticket::from_str(text) {
        assert_eq!(Ticket::from_str(&ticket.to_string()).expect("a ticket of ours"), ticket);
    }
    if let Ok(token) = Token::from_str(text) {
        assert_eq!(Token::from_str(&token.to_string()).expect("a token of ours"), token);
    }
    let _ = Period::from_str(text);
}

/// A claim of ours among what others wrote.
pub(crate) fn a_claim() -> Arc<Claim> {
    Arc::new(Claim {
        id: ClaimId::new(ClientId::from_u64(7), 9),
        name: Name::new("a").expect("a name"),
        share: Share::Exclusive,
        owner: None,
        ttl: Duration::from_secs(30),
        label: "us".into(),
        detached: false,
        writes: false,
        auto_renew: true,
    })
}

/// Does with a line of others what a store does with it.
pub(crate) fn use_line(name: &Name, mut line: Line) {
    let claim = a_claim();
    let mut effects = Vec::new();
    for micros in [0, 1, 1_000_000, u64::MAX / 2_000] {
        let at = StoreTime { lease: Moment::from_nanos(micros.saturating_mul(1_000)), micros };
        let _ = line.look(name, at);
        line.enter(&claim, Ask::Queue, at, &mut effects);
        line.renew(claim.id, at, &mut effects);
        line.reap(at, &mut effects);
        line.leave(claim.id, Leave::Done, at, &mut effects);
        let _ = (line.may_be_forgotten(at), line.next_lapse(), line.longest_ttl());
    }
}
