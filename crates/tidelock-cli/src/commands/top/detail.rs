//! The pane of one lock: who holds it, who waits, and what happened.

use ratatui::{
    Frame,
    layout::Rect,
    style::Stylize,
    text::Line,
    widgets::{Block, Borders, Paragraph},
};

use super::state::State;
use crate::{
    clock::{Moment, unix_ms, utc},
    observe::{Claim, Event, Lock, What},
    output::escaped,
    values::Span,
};

/// Of those who wait, as many are shown as leave room for events.
const EVENTS: usize = 4;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, now: Moment) {
    let block = Block::new().borders(Borders::TOP);
    let Some(lock) = state.lock() else {
        return frame.render_widget(block.title(" no lock is selected "), area);
    };
    let room = usize::from(area.height.saturating_sub(1));
    let block = block.title(format!(" {} ", escaped(lock.name.as_str())));
    let mut lines = line(lock, room.saturating_sub(EVENTS + 1).max(1), now);
    lines.push(Line::from("What happened").bold());
    let events: Vec<_> =
        state.events_of(&lock.name).take(room.saturating_sub(lines.len())).map(happened).collect();
    if events.is_empty() {
        lines.push(Line::from("nothing since this was started").dim());
    }
    lines.extend(events);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// The holders, and those who wait behind them.
fn line(lock: &Lock, room: usize, now: Moment) -> Vec<Line<'static>> {
    let all = lock.holders.len() + lock.waiters.len();
    let shown = if all > room { room - 1 } else { all };
    let mut lines: Vec<Line<'static>> = lock
        .holders
        .iter()
        .map(|holder| Line::from(format!("holds   {}", claim(holder, now))).bold())
        .chain(
            (1..)
                .zip(&lock.waiters)
                .map(|(place, waiter)| Line::from(format!("{place:>5}.  {}", claim(waiter, now)))),
        )
        .take(shown)
        .collect();
    if shown < all {
        lines.push(Line::from(format!("        and {} more", all - shown)).dim());
    }
    lines
}

fn claim(claim: &Claim, now: Moment) -> String {
    let owner = claim.view.owner.as_ref().map(|owner| format!(" (owner {})", escaped(owner.as_str())));
    format!(
        "{}{}  {} for {}, {} left",
        escaped(&claim.view.label),
        owner.unwrap_or_default(),
        claim.view.share,
        Span(now.since(claim.since)),
        Span(claim.until.since(now)),
    )
}

fn happened(event: &Event) -> Line<'static> {
    let time = utc(unix_ms(event.at));
    // The time of the day is enough for an hour.
    let time = time.get(11..19).unwrap_or_default();
    let detail = match &event.what {
        What::Granted { waited: Some(waited), .. } => format!(" after {}", Span(*waited)),
        What::Ended { held: Some(held), .. } => format!(" after {}", Span(*held)),
        What::RenewedLate { left } => format!(" with {} left", Span(*left)),
        _ => String::new(),
    };
    let reason = event.what.reason().map(|reason| format!(": {}", escaped(reason))).unwrap_or_default();
    Line::from(format!("{time}  {:<12} {}{detail}{reason}", event.what.word(), escaped(&event.label)))
}
