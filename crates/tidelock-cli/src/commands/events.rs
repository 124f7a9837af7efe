//! `tidelock events`: what happens to locks, a line for each event.

use std::{fmt::Write, future::pending, io, os::fd::AsFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use serde_json::{Value, json};
use tidelock::Name;

use crate::{
    args,
    clock::{Moment, unix_ms, utc},
    exit::Exit,
    observe::{Event, News, Observer, Options, What},
    output::{self, Trouble, escaped},
    signals::Signals,
    store::Store,
    values::Span,
};

/// Events are printed when they are seen; they need not be kept for longer than a slow reader takes.
const HISTORY: Duration = Duration::from_secs(600);

/// Prints events until a signal or the reader ends it.
pub(crate) async fn run(args: &args::Events) -> Result<Exit, Trouble> {
    let store = Store::new(&args.store)?;
    let mut signals = Signals::forwarded()?;
    let locks = tokio::select! {
        locks = store.connect() => locks?,
        _ = signals.end() => return Ok(Exit::Done),
    };
    let observer =
        Observer::start(locks, Options { interval: args.interval, history: HISTORY, always: false });
    let mut viewer = observer.subscribe();
    // A whole name is a prefix of itself, and can be looked at often.
    viewer.focus(args.prefixes.iter().filter_map(|prefix| Name::new(prefix).ok()));
    let mut sight = Sight::default();
    let closed = output_closed();
    tokio::pin!(closed);
    loop {
        let news = tokio::select! {
            news = viewer.next() => news,
            _ = signals.end() => return Ok(Exit::Done),
            () = &mut closed => return Ok(Exit::Done),
        };
        let text = lines(args, &mut sight, &news);
        // A reader may be slow, or may not read at all.
        tokio::select! {
            written = output::text_in_background(text) => written?,
            _ = signals.end() => return Ok(Exit::Done),
        }
    }
}

/// Whether the store is seen, as far as that was printed.
#[derive(Debug, Default)]
struct Sight {
    since: bool,
    lost: bool,
}

/// The lines of what is new.
fn lines(args: &args::Events, sight: &mut Sight, news: &News) -> String {
    let mut lines = String::new();
    let mut line = |value: Value, text: &dyn Fn(&mut String)| {
        if args.json {
            lines.push_str(&value.to_string());
        } else {
            text(&mut lines);
        }
        lines.push('\n');
    };
    let is_wanted =
        |name: &str| args.prefixes.is_empty() || args.prefixes.iter().any(|prefix| name.starts_with(prefix));
    if let (false, Some(since)) = (sight.since, news.since) {
        sight.since = true;
        let locks = news.locks.changed.iter().filter(|lock| is_wanted(lock.name.as_str())).count();
        let at = unix_ms(since);
        line(json!({"event": "watching", "at_ms": at, "locks": locks}), &|lines| {
            word(lines, at, "watching");
            // Writing to a string does not fail, here and below.
            let _ = write!(lines, "{} in use", output::locks(locks));
        });
    }
    if news.has_missed {
        let at = unix_ms(news.now);
        line(json!({"event": "missed", "at_ms": at}), &|lines| {
            word(lines, at, "missed");
            lines.push_str("more events than are kept");
        });
    }
    for event in news.events.iter().filter(|event| is_wanted(event.name.as_str())) {
        line(serde_json::to_value(&**event).unwrap_or_default(), &|lines| describe(lines, event));
    }
    if news.health.error.is_some() != sight.lost {
        sight.lost = !sight.lost;
        let at = unix_ms(news.health.since.unwrap_or_else(Moment::now));
        match &news.health.error {
            Some(error) => line(json!({"event": "sight_lost", "at_ms": at, "reason": &**error}), &|lines| {
                word(lines, at, "sight_lost");
                lines.push_str(&escaped(error));
            }),
            None => line(json!({"event": "sight_regained", "at_ms": at}), &|lines| {
                word(lines, at, "sight_regained");
                lines.push_str("the store answers again");
            }),
        }
    }
    lines
}

/// The beginning of a line.
fn word(lines: &mut String, at: u64, word: &str) {
    let _ = write!(lines, "{}  {word:<14}  ", utc(at));
}

/// An event, as people read it.
fn describe(lines: &mut String, event: &Event) {
    word(lines, unix_ms(event.at), event.what.word());
    let _ = write!(lines, "{}  {}", escaped(event.name.as_str()), escaped(&event.label));
    if let Some(token) = event.what.token() {
        let _ = write!(lines, "  token {token}");
    }
    let _ = match &event.what {
        What::Granted { waited: Some(waited), .. } => write!(lines, "  waited {}", Span(*waited)),
        What::RenewedLate { left } => write!(lines, "  {} left", Span(*left)),
        What::Ended { held: Some(held), .. } => write!(lines, "  held {}", Span(*held)),
        _ => Ok(()),
    };
    if let Some(reason) = event.what.reason() {
        let _ = write!(lines, "  {}", escaped(reason));
    }
}

/// Resolves when nobody can read standard output any more. Never for what is no pipe.
async fn output_closed() {
    let closed = tokio::task::spawn_blocking(|| {
        let Ok(out) = io::stdout().as_fd().try_clone_to_owned() else { return false };
        // Nothing is asked for: only errors end it, as that the reader is gone.
        let mut polled = [PollFd::new(&out, PollFlags::empty())];
        loop {
            match poll(&mut polled, None) {
                Err(Errno::INTR) => {}
                polled => return polled.is_ok(),
            }
        }
    });
    if !closed.await.unwrap_or_default() {
        pending().await
    }
}
