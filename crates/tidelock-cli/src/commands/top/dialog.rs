//! What lies over the table: the help, and the question before a break.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Stylize},
    text::Line,
    widgets::{Block, Clear, Paragraph, Wrap},
};

use super::{keys::KEYS, state::Asked};
use crate::{output::escaped, values::Span};

/// Shows which keys there are.
pub(super) fn help(frame: &mut Frame<'_>) {
    let lines = KEYS.iter().map(|(key, what)| Line::from(format!("{key:<10}  {what}")));
    over(frame, " Keys ", lines.collect(), 64);
}

/// Asks whether and why to break a lock.
pub(super) fn ask(frame: &mut Frame<'_>, asked: &Asked) {
    let mut lines = vec![
        Line::from(format!("Held by {} for {}.", asked.holder, Span(asked.held))),
        Line::from(match asked.waiting {
            0 => "It is told that the lock is lost. Nobody waits for it.".to_owned(),
            waiting => format!("It is told that the lock is lost. The first of {waiting} waiting gets it."),
        }),
    ];
    if asked.is_foreign {
        let text = "It belongs to another program, which goes on as if it held the lock.";
        lines.push(Line::from(text).fg(Color::Red));
    }
    lines.push(Line::default());
    lines.push(Line::from(format!("Reason: {}▏", escaped(&asked.reason))).bold());
    lines.push(Line::default());
    lines.push(match asked.wrong {
        Some(wrong) => Line::from(wrong).fg(Color::Red),
        None => Line::from("Enter breaks the lock, Esc does not.").dim(),
    });
    over(frame, &format!(" Break {}? ", escaped(asked.name.as_str())), lines, 72);
}

/// A box in the middle of the screen.
fn over(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>, width: u16) {
    let all = frame.area();
    let width = width.min(all.width);
    // Lines that are longer than the box are wrapped, and take one more each time.
    let inner = usize::from(width.saturating_sub(2)).max(1);
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum();
    let height = u16::try_from(rows + 2).unwrap_or(u16::MAX).min(all.height);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::bordered().title(title));
    let area = Rect { x: (all.width - width) / 2, y: (all.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    frame.render_widget(text, area);
}
