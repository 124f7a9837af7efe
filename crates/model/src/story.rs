//! A way through the model, told in words.

use crate::{
    rules::{Epochs, Promise, Steps},
    state::{Epoch, Holder, Phase, State, TICK},
    steps::{Question, Step, World},
};

/// One line for each step, and what is wrong in the end.
///
/// The search renames servers and clients at each step. The story keeps their names: it takes, from where it is, a step
/// to a state that differs from the next one of the search in names only.
pub(crate) fn tell<const S: usize, const C: usize>(
    world: &World,
    promise: Promise,
    path: &[State<S, C>],
) -> Vec<String> {
    let mut clock = 0;
    let mut here = State::start(&world.rules, &world.bounds);
    let mut lines = Vec::new();
    let mut steps = Vec::new();
    for next in path.iter().skip(1) {
        world.steps(&here, &mut steps);
        let mut taken = steps.drain(..).map(|step| (step, world.after(&here, step)));
        let Some((step, there)) = taken.find(|(_, there)| there.canonical() == *next) else {
            lines.push("(a step that cannot be told)".to_owned());
            break;
        };
        clock += i16::from(step == Step::Tick);
        lines.push(sentence(world, clock, &here, &there, step));
        here = there;
    }
    lines.push(verdict(promise, &here));
    lines
}

/// A client's name.
fn client(claim: usize) -> char {
    char::from(b'A' + claim as u8)
}

/// An epoch as a reader of the whole story sees it: from the story's beginning on.
fn absolute(world: &World, clock: i16, epoch: Epoch) -> String {
    match world.rules.epochs {
        Epochs::Timed => (i32::from(epoch) + i32::from(clock) * i32::from(TICK)).to_string(),
        Epochs::Counted => epoch.to_string(),
        Epochs::Ignored => "?".to_owned(),
    }
}

fn ticks(count: u8) -> String {
    if count == 1 { "1 tick".to_owned() } else { format!("{count} ticks") }
}

fn sentence<const S: usize, const C: usize>(
    world: &World,
    clock: i16,
    before: &State<S, C>,
    after: &State<S, C>,
    step: Step,
) -> String {
    match step {
        Step::Ask(claim) => format!("client {} asks all servers for the lock", client(claim)),
        Step::Arrive { question, claim, server, ahead, again } => {
            let mut text = arrival(world, clock, before, after, question, claim, server);
            if ahead {
                text += "; its wall clock is ahead";
            }
            if again {
                text += "; the message will arrive once more";
            }
            text
        }
        Step::Decide { claim, votes } => {
            let from: Vec<_> = (0..S)
                .filter(|server| votes & (1 << server) != 0)
                .map(|server| (server + 1).to_string())
                .collect();
            let votes = if from.len() == 1 { "the vote of server" } else { "the votes of servers" };
            let from = format!("client {} has {votes} {}", client(claim), from.join(" and "));
            if after.claims[claim].phase == Phase::Raising {
                let token = absolute(world, clock, after.claims[claim].token);
                return format!("{from}, and writes token {token} back, which not all of them know");
            }
            format!("{from}: {}", returned(world, clock, after, claim))
        }
        Step::Return(claim) => {
            format!(
                "client {}'s token is known to a majority: {}",
                client(claim),
                returned(world, clock, after, claim)
            )
        }
        Step::Renew(claim) => format!("client {} asks all servers to renew", client(claim)),
        Step::Confirm(claim) => format!(
            "client {} counts a majority for its renewal; its window: {} left",
            client(claim),
            ticks(after.claims[claim].left)
        ),
        Step::Leave(claim) => match before.claims[claim].phase {
            Phase::Held => format!("client {} releases: tells all servers", client(claim)),
            _ => format!("client {} gives up: tells all servers", client(claim)),
        },
        Step::Tick => format!("a tick passes{}", standing(world, after)),
        Step::Lapse(server) => format!("server {}'s clock is fast: the lease there ends", server + 1),
        Step::Jump(server) if world.rules.steps == Steps::Age => {
            format!("server {}'s clock was behind and is set right: it seems to be up for long", server + 1)
        }
        Step::Jump(server) => format!("server {}'s clock steps ahead: all leases there end", server + 1),
        Step::SetRight(server) => format!("server {}'s clock is set right", server + 1),
        Step::PutBack { claim, server } => {
            format!("server {} is back: client {} asks it for its place", server + 1, client(claim))
        }
        Step::Restart { server, remembers: true } => format!("server {} restarts and remembers", server + 1),
        Step::Restart { server, remembers: false } => format!("server {} restarts and forgets", server + 1),
    }
}

fn returned<const S: usize, const C: usize>(
    world: &World,
    clock: i16,
    after: &State<S, C>,
    claim: usize,
) -> String {
    let it = &after.claims[claim];
    let token = match world.rules.epochs {
        Epochs::Ignored => String::new(),
        _ => format!(" with token {}", absolute(world, clock, it.token)),
    };
    format!("it holds the lock{token}; its window: {} left", ticks(it.left))
}

/// What became of a question at a server.
fn arrival<const S: usize, const C: usize>(
    world: &World,
    clock: i16,
    before: &State<S, C>,
    after: &State<S, C>,
    question: Question,
    claim: usize,
    server: usize,
) -> String {
    let (was, is) = (&before.sites[server].server, &after.sites[server].server);
    let (link, me) = (&after.sites[server].links[claim], Holder::Claim(claim as u8));
    let had = was.holder == me;
    let epoch = absolute(world, clock, is.last);
    let (server, client) = (server + 1, client(claim));
    // A claim of which nothing else is under way is a ghost as soon as it is made.
    let has = is.holder == me || (is.holder == Holder::Ghost && was.holder == Holder::Nobody);
    match question {
        Question::Enter if !has => format!("server {server} is busy and refuses client {client}"),
        Question::Enter if link.vote.is_some() => {
            let lease = ticks(is.lease);
            match world.rules.epochs {
                Epochs::Ignored => format!("server {server} votes for client {client}, lease {lease}"),
                _ => format!("server {server} votes for client {client} with epoch {epoch}, lease {lease}"),
            }
        }
        Question::Enter if before.claims[claim].phase == Phase::Asking => {
            format!("server {server} restarted not long ago: it lets client {client} in, but has no vote")
        }
        Question::Enter => format!("server {server} lets client {client} in, which does not wait any more"),
        Question::Raise if has => format!("server {server} writes down client {client}'s token: {epoch}"),
        Question::Raise => format!("server {server} does not know client {client}, and writes down no token"),
        Question::Renew | Question::LateRenew if !has => {
            format!("server {server} refuses client {client}'s renewal")
        }
        Question::Renew | Question::LateRenew => {
            let how = if had { "renews" } else { "takes in again" };
            let counts = if link.renewed { "" } else { " (nobody counts it)" };
            format!("server {server} {how} client {client}, lease {}{counts}", ticks(is.lease))
        }
        Question::Leave if is.holder == Holder::Nobody && was.holder != Holder::Nobody => {
            format!("server {server} hears that client {client} leaves, and is free")
        }
        Question::Leave => format!("server {server} hears that client {client} leaves, and frees nothing"),
    }
}

/// Windows and leases, after time has passed.
fn standing<const S: usize, const C: usize>(world: &World, state: &State<S, C>) -> String {
    let windows = state.claims.iter().enumerate().filter_map(|(number, claim)| {
        let left = (claim.phase == Phase::Held).then(|| ticks(claim.left))?;
        Some(format!("client {}'s window: {left} left", client(number)))
    });
    let leases = state.sites.iter().enumerate().filter_map(|(number, site)| {
        let server = &site.server;
        let who = match server.holder {
            Holder::Nobody => return None,
            Holder::Claim(claim) => client(usize::from(claim)).to_string(),
            Holder::Ghost => "a client that is gone".to_owned(),
        };
        let lease = if server.lease <= world.bounds.drift { "may end" } else { "runs" };
        Some(format!("the lease of {who} on server {} {lease}", number + 1))
    });
    let all: Vec<_> = windows.chain(leases).collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join("; ")) }
}

fn verdict<const S: usize, const C: usize>(promise: Promise, end: &State<S, C>) -> String {
    match promise {
        Promise::OneHolder => {
            let holders = (0..C).filter(|&claim| end.claims[claim].holds());
            let holders: Vec<_> = holders
                .map(|claim| format!("client {} ({} left)", client(claim), ticks(end.claims[claim].left)))
                .collect();
            format!("TWO HOLDERS inside their windows: {}", holders.join(" and "))
        }
        Promise::OrderedTokens => {
            "TOKENS GO BACK: an earlier guard had a token that is not smaller".to_owned()
        }
        Promise::NoDeadlock => {
            "DEADLOCK: all messages arrive, all leases end, and still nobody can get the lock".to_owned()
        }
    }
}
