//! The screen: a header, the table of locks, the pane of one lock, and a footer.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span as Piece},
    widgets::{Cell, Paragraph, Row, Table},
};

use super::{
    detail, dialog,
    state::{Mode, State},
};
use crate::{
    args::Sort,
    clock::Moment,
    observe::{Claim, Lock},
    output::{self, escaped},
    values::Span,
};

/// How many cells the bar of a lease has.
const BAR: usize = 8;
/// From this width on, the pane is beside the table and not below it.
const WIDE: u16 = 130;
/// Below this width, there is no room for tokens.
const WITH_TOKENS: u16 = 76;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, now: Moment) {
    let [header, body, footer] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(head(state, now), header);
    let (rows, pane) = if !state.has_detail {
        (body, None)
    } else if body.width >= WIDE {
        let [rows, pane] = Layout::horizontal([Constraint::Percentage(60), Constraint::Fill(1)]).areas(body);
        (rows, Some(pane))
    } else {
        let [rows, pane] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(body);
        (rows, Some(pane))
    };
    table(frame, rows, state, now);
    if let Some(pane) = pane {
        detail::draw(frame, pane, state, now);
    }
    frame.render_widget(foot(state), footer);
    match &state.mode {
        Mode::Help => dialog::help(frame),
        Mode::Break(asked) => dialog::ask(frame, asked),
        Mode::Normal | Mode::Filter => {}
    }
}

/// The store, and how it is.
fn head(state: &State, now: Moment) -> Line<'static> {
    let count = match state.rows.len() {
        shown if shown == state.all() => output::locks(shown),
        shown => format!("{shown} of {}", output::locks(state.all())),
    };
    let mut line = vec![
        Piece::from(" tidelock top ").reversed(),
        Piece::from(format!(" {}  {count}, {} waiting", state.place, state.waiting())),
    ];
    if let Some(error) = &state.health.error {
        let silent =
            state.health.since.map(|since| format!(" for {}", Span(now.since(since)))).unwrap_or_default();
        line.push(Piece::from(format!("  not seen{silent}: {}", escaped(error))).fg(Color::Red));
    } else if !state.has_looked {
        line.push(Piece::from("  looking …").dim());
    }
    Line::from(line)
}

fn foot(state: &State) -> Line<'_> {
    if let Some(message) = &state.message {
        return Line::from(message.as_str()).bold();
    }
    match &state.mode {
        Mode::Filter => {
            Line::from(format!("/{}▏  Enter keeps the filter, Esc removes it", escaped(&state.filter)))
        }
        _ if !state.filter.is_empty() => {
            Line::from(format!("filter {:?}: Esc removes it  ·  ? help  q quit", state.filter))
        }
        _ => Line::from("↑↓ select  Enter detail  n a w l sort  / filter  b break  ? help  q quit").dim(),
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, state: &mut State, now: Moment) {
    state.scroll(usize::from(area.height.saturating_sub(1)));
    let has_tokens = area.width >= WITH_TOKENS;
    let mark = |title: &'static str, by: Sort| {
        let arrow = match (state.sort == by, state.is_reversed) {
            (false, _) => "",
            (true, false) => " ▼",
            (true, true) => " ▲",
        };
        Cell::from(format!("{title}{arrow}"))
    };
    let mut titles = vec![
        mark("NAME", Sort::Name),
        Cell::from("HELD BY"),
        mark("FOR", Sort::Age),
        mark("LEFT", Sort::Left),
        mark("WAITING", Sort::Waiting),
    ];
    let mut widths = vec![
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(7),
        Constraint::Length(BAR as u16),
        Constraint::Length(9),
    ];
    if has_tokens {
        titles.push(Cell::from("TOKEN"));
        widths.push(Constraint::Length(20));
    }
    let rows = state.rows.iter().skip(state.offset).take(state.height);
    let rows = rows.map(|lock| {
        let mut cells = vec![
            Cell::from(escaped(lock.name.as_str())),
            Cell::from(holders(lock)),
            Cell::from(age(lock, now)),
            Cell::from(bar(lock, now)),
            Cell::from(Line::from(lock.waiters.len().to_string()).right_aligned()),
        ];
        if has_tokens {
            cells.push(Cell::from(token(lock)));
        }
        let row = Row::new(cells);
        if state.selected.as_ref() == Some(&lock.name) { row.add_modifier(Modifier::REVERSED) } else { row }
    });
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .column_spacing(1)
        .header(Row::new(titles).style(Style::new().bold()));
    frame.render_widget(table, area);
    if state.rows.is_empty() && state.has_looked && area.height > 2 {
        let text = if state.all() == 0 { "No lock is in use." } else { "No lock fits the filter." };
        frame.render_widget(Paragraph::new(text).dim(), Rect { y: area.y + 2, height: 1, ..area });
    }
}

/// Who holds a lock, in a few words.
pub(super) fn holders(lock: &Lock) -> String {
    match lock.holders.as_slice() {
        [] => "nobody".to_owned(),
        [one] => escaped(&one.view.label),
        [first, more @ ..] => format!("{} and {} more", escaped(&first.view.label), more.len()),
    }
}

fn age(lock: &Lock, now: Moment) -> String {
    lock.oldest_holder().map_or_else(String::new, |holder| Span(now.since(holder.since)).to_string())
}

fn token(lock: &Lock) -> String {
    lock.token.map_or_else(|| "-".to_owned(), |token| token.to_string())
}

/// How much of the lease of the first holder to run out of time is left.
fn bar(lock: &Lock, now: Moment) -> Line<'static> {
    let Some(holder) = lock.holders.iter().min_by_key(|holder| holder.until) else { return Line::default() };
    let part = part_left(holder, now);
    let color = match part {
        part if part > 0.5 => Color::Green,
        part if part > 0.25 => Color::Yellow,
        _ => Color::Red,
    };
    Line::from(blocks(part)).fg(color)
}

/// The time left of a claim, as a part of its lease.
fn part_left(claim: &Claim, now: Moment) -> f64 {
    let lease = claim.lease.max(Duration::from_millis(1)).as_secs_f64();
    (claim.until.since(now).as_secs_f64() / lease).min(1.0)
}

/// A bar, in eighths of a cell.
fn blocks(part: f64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (part * (BAR * 8) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

/// All rows as text, for scripts.
pub(super) fn plain(state: &State, now: Moment) -> String {
    let rows: Vec<_> = state
        .rows
        .iter()
        .map(|lock| {
            let left = lock.holders.iter().map(|holder| holder.until.since(now)).min();
            [
                escaped(lock.name.as_str()),
                holders(lock),
                age(lock, now),
                left.map_or_else(String::new, |left| Span(left).to_string()),
                lock.waiters.len().to_string(),
                token(lock),
            ]
        })
        .collect();
    let table = output::table(["NAME", "HELD BY", "FOR", "LEFT", "WAITING", "TOKEN"], &rows);
    format!("{}  {}, {} waiting\n\n{table}", state.place, output::locks(state.rows.len()), state.waiting())
}
