//! `tidelock break`: locks are taken away from their holders.

use std::{
    fmt::Write as _,
    io::{self, BufRead, IsTerminal, Write as _},
};

use serde::Serialize;
use tidelock::{
    Done, MAX_OWNER_BYTES,
    backend::{ClaimView, LockView},
};

use crate::{
    args::Break,
    exit::Exit,
    output::{self, Trouble},
    store::Store,
    values::Span,
    who,
};

/// What was done to a lock, as programs read it.
#[derive(Debug, Serialize)]
struct Broken<'a> {
    name: &'a str,
    store: &'static str,
    reason: &'a str,
    evicted: Vec<&'a ClaimView>,
    /// Those who stay because nobody confirmed.
    would_evict: Vec<&'a ClaimView>,
}

/// Evicts the holders that were meant; waiters stay in the queue.
pub(crate) async fn run(args: &Break) -> Result<Exit, Trouble> {
    check(args)?;
    let locks = Store::new(&args.store)?.connect().await?;
    let store = locks.abilities().store;
    let name = args.name.as_deref().or(args.named.as_deref());
    let views = match name {
        Some(name) => locks.look([name]).await?,
        None => locks.look_all().await?,
    };
    let views = choose(views, args);
    let mut broken: Vec<_> = views
        .iter()
        .map(|view| Broken {
            name: view.name.as_str(),
            store,
            reason: &args.reason,
            evicted: Vec::new(),
            would_evict: Vec::new(),
        })
        .collect();
    if views.is_empty() {
        print(args, name, store, &broken)?;
        output::complain(&nothing(args, name, store));
        return Ok(Exit::No);
    }
    let is_foreign = |view: &LockView| view.holders.iter().any(|holder| holder.foreign.is_some());
    // A program of another make goes on as if it held: somebody has to know that it does not matter.
    let asks = name.is_none() || views.iter().any(is_foreign);
    if asks && !args.yes && !is_confirmed(args, &views)? {
        for (broken, view) in broken.iter_mut().zip(&views) {
            broken.would_evict = view.holders.iter().collect();
        }
        if args.json {
            print(args, name, store, &broken)?;
        }
        output::complain(&format!("nothing was broken: add --yes to break {}", count(&views)));
        return Ok(Exit::No);
    }
    let mut failed = None;
    let reason = who::signed(&args.reason, &who::user());
    for (broken, view) in broken.iter_mut().zip(&views) {
        for holder in &view.holders {
            // This very claim and not the lock: if it was released in the meantime, its holder now is
            // not the one that was meant.
            match locks.evict(view.name.as_str(), holder.id, &reason).await {
                Ok(true) => broken.evicted.push(holder),
                Ok(false) => output::complain(&format!(
                    "{} released lock {:?} on {store} just now",
                    holder.label, view.name
                )),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // The other locks are on the same store, and would each wait for it in vain.
        if failed.as_ref().is_some_and(tidelock::Error::is_unavailable) {
            break;
        }
    }
    // What is done is done, and has to be told whatever failed.
    print(args, name, store, &broken)?;
    match failed {
        Some(error) => Err(error.into()),
        None if broken.iter().all(|broken| broken.evicted.is_empty()) => {
            output::complain(&nothing(args, name, store));
            Ok(Exit::No)
        }
        None => Ok(Exit::Done),
    }
}

/// What can be known before the store is asked.
fn check(args: &Break) -> Result<(), Trouble> {
    let wrong = |text: String| Err(Trouble::Usage(text));
    // Without a reason nobody can tell later whether it was right.
    if args.reason.trim().is_empty() {
        return wrong("the reason is empty: say why the lock is broken".into());
    }
    // Here and not where it is told to the holders: a mistake is one whether or not there are any.
    if args.reason.len() > MAX_OWNER_BYTES {
        return wrong(format!(
            "the reason has {} bytes, at most {MAX_OWNER_BYTES} are allowed: shorten it",
            args.reason.len()
        ));
    }
    if args.reason.contains(char::is_control) {
        return wrong("the reason has a control character: write it in one line".into());
    }
    // A variable of a script that is not set must not break every lock.
    if args.prefix.as_deref() == Some("") {
        return wrong("the prefix is empty: write how the names of the locks start".into());
    }
    Ok(())
}

/// The locks and holders that were meant, in the order of their names.
fn choose(mut views: Vec<LockView>, args: &Break) -> Vec<LockView> {
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let least = args.older_than.unwrap_or_default();
    // A slot that is done is no lock: who means it names it.
    let is_named = args.name.is_some() || args.named.is_some();
    views.retain(|view| is_named || Done::of(view).is_none());
    views.retain_mut(|view| {
        view.holders.retain(|holder| holder.age >= least);
        view.name.as_str().starts_with(prefix) && !view.holders.is_empty()
    });
    views.sort_by(|one, other| one.name.cmp(&other.name));
    views
}

/// Lists what would be broken, and asks if somebody is there to answer.
fn is_confirmed(args: &Break, views: &[LockView]) -> io::Result<bool> {
    let rows: Vec<_> = views
        .iter()
        .flat_map(|view| view.holders.iter().map(move |holder| (view, holder)))
        .map(|(view, holder)| {
            let token = holder.token().map_or_else(|| "-".to_owned(), |token| token.to_string());
            let (label, age, share) = (&holder.label, Span(holder.age), holder.share);
            [view.name.to_string(), label.to_string(), age.to_string(), share.to_string(), token]
        })
        .collect();
    let table = output::table(["NAME", "HELD BY", "FOR", "AS", "TOKEN"], &rows);
    if args.json {
        return Ok(false);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        output::text(&table)?;
        return Ok(false);
    }
    // Both in the same place, wherever the output goes.
    io::stderr().write_all(format!("{table}break {}? [y/N] ", count(views)).as_bytes())?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn count(views: &[LockView]) -> String {
    match views.len() {
        1 => "this lock".to_owned(),
        n => format!("these {n} locks"),
    }
}

/// Says that there is nothing to break.
fn nothing(args: &Break, name: Option<&str>, store: &str) -> String {
    let for_long = args.older_than.map(|time| format!(" for {} or longer", Span(time))).unwrap_or_default();
    let what = match (name, &args.prefix) {
        (Some(name), _) => format!("lock {name:?}"),
        (None, Some(prefix)) => format!("a lock whose name starts with {prefix:?}"),
        (None, None) => "a lock".to_owned(),
    };
    let has_held = if for_long.is_empty() { "holds" } else { "has held" };
    format!("nobody {has_held} {what} on {store}{for_long}: there is nothing to break")
}

/// Prints what was done: of one lock by its name, else of all.
fn print(args: &Break, name: Option<&str>, store: &'static str, broken: &[Broken<'_>]) -> io::Result<()> {
    if args.json {
        return match (name, broken) {
            (Some(_), [one]) => output::json(one),
            (Some(name), _) => output::json(&Broken {
                name,
                store,
                reason: &args.reason,
                evicted: Vec::new(),
                would_evict: Vec::new(),
            }),
            (None, all) => output::json(&all),
        };
    }
    let mut text = String::new();
    for Broken { name, reason, evicted, .. } in broken {
        for claim in evicted {
            let age = Span(claim.age);
            let (label, reason) = (output::clean(&claim.label), output::clean(reason));
            // Writing to a string does not fail.
            let _ = if claim.foreign.is_some() {
                writeln!(text, "evicted {label} from lock {name:?} on {store}, which is not told: {reason}")
            } else {
                writeln!(text, "evicted {label} from lock {name:?} on {store} after {age}: {reason}")
            };
        }
    }
    output::text(&text)
}
