//! `tidelock leader`: who leads an election.

use serde::Serialize;
use tidelock::{Leader, Name, Token};

use crate::{
    args::{self, Field},
    exit::Exit,
    output::{self, Trouble},
    store::Store,
    values::Span,
};

/// Prints who leads, once or at each change.
pub(crate) async fn run(args: &args::Leader) -> Result<Exit, Trouble> {
    let locks = Store::new(&args.store)?.connect().await?;
    let election = locks.election(args.which.name());
    if !args.watch {
        let leader = election.leader().await?;
        if let Some(label) = &args.is_me {
            return Ok(yes(leader.is_some_and(|leader| *leader.label == **label)));
        }
        return print(args, leader.as_ref());
    }
    let mut watch = election.watch();
    while let Some(leader) = watch.next().await {
        print(args, leader?.as_ref())?;
    }
    Ok(Exit::Done)
}

/// Prints who leads, and says whether there was something to print.
fn print(args: &args::Leader, leader: Option<&Leader>) -> Result<Exit, Trouble> {
    if args.json {
        let seen = Seen { name: Name::new(args.which.name())?, leader: leader.map(Shown::new) };
        if args.watch {
            // A line each, for programs that read lines.
            output::text(&format!("{}\n", serde_json::to_string(&seen).map_err(std::io::Error::from)?))?;
        } else {
            output::json(&seen)?;
        }
        return Ok(yes(leader.is_some()));
    }
    let text = match args.field {
        None => Some(sentence(args.which.name(), leader)),
        Some(field) => leader.and_then(|leader| value(leader, field)),
    };
    if let Some(text) = &text {
        output::text(&format!("{}\n", output::clean(text)))?;
    } else if args.watch {
        // Nobody leads, or nothing is advertised: programs that read lines see an empty one.
        output::text("\n")?;
    }
    Ok(yes(leader.is_some() && text.is_some()))
}

fn yes(yes: bool) -> Exit {
    if yes { Exit::Done } else { Exit::No }
}

fn value(leader: &Leader, field: Field) -> Option<String> {
    match field {
        Field::Advertised => leader.advertised.as_deref().map(ToOwned::to_owned),
        Field::Label => Some(leader.label.to_string()),
        Field::Token => Some(leader.token.to_string()),
    }
}

fn sentence(name: &str, leader: Option<&Leader>) -> String {
    let Some(leader) = leader else { return format!("nobody leads {name:?}") };
    let Leader { label, token, .. } = leader;
    let advertised =
        leader.advertised.as_ref().map(|text| format!(", advertises {text}")).unwrap_or_default();
    let since = leader.since.elapsed().unwrap_or_default();
    format!("{label} leads {name:?} for {}, term {token}{advertised}", Span(since))
}

/// An election, as programs read it.
#[derive(Serialize)]
struct Seen {
    name: Name,
    leader: Option<Shown>,
}

/// A leader, as programs read it.
#[derive(Serialize)]
pub(crate) struct Shown {
    label: String,
    advertised: Option<String>,
    token: Token,
    leads_for_ms: u64,
}

impl Shown {
    pub(crate) fn new(leader: &Leader) -> Self {
        let since = leader.since.elapsed().unwrap_or_default();
        Self {
            label: leader.label.to_string(),
            advertised: leader.advertised.as_deref().map(ToOwned::to_owned),
            token: leader.token,
            leads_for_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
