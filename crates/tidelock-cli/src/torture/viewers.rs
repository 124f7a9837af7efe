//! The task that looks at locks and does not use them: lists, what the store tells of changes, leaders. It also knocks with a
//! wrong password, and prints what people print.

use std::time::Duration;

use tidelock::{Error, ErrorKind, Locks, backend::LockView};
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    player::Player,
    record::{Event, Which},
    work::{Pace, URL, Use},
};
use crate::{clock::Moment, output};

/// A login that nobody has.
const STRANGER: &str = "torture-stranger";
const WRONG: &str = "not-the-password";

/// The option with which a store is asked to check a login, where it is a choice.
const AUTH: (&str, &str) = ("auth", "sasl");

/// How long a connection with it may take.
const REFUSED: Duration = Duration::from_secs(20);

impl Player {
    pub(super) async fn view(&mut self) -> bool {
        sleep(self.rng.millis(100, 700)).await;
        match self.rng.below(100) {
            0..40 => self.list().await,
            40..70 => self.follow().await,
            70..92 => self.watch().await,
            _ => self.knock().await,
        }
    }

    /// Lists all locks.
    async fn list(&mut self) -> bool {
        let from = Moment::now();
        let Ok(views) = self.locks.look_all().await else { return false };
        self.note_look(from, Which::All, &views);
        self.print();
        true
    }

    /// Looks at what the store says has changed, for a while.
    async fn follow(&mut self) -> bool {
        let Some(mut all) = self.locks.follow_all() else { return self.list().await };
        let time = self.rng.millis(200, 2_500);
        let following = async {
            loop {
                let told = all.next().await;
                // Those of others are none of ours.
                let locks = (0_u16..).zip(&self.work.locks);
                let changed =
                    locks.filter(|(_, lock)| told.names.iter().any(|name| name.as_str() == lock.name));
                let (numbers, names): (Vec<_>, Vec<_>) =
                    changed.map(|(lock, it)| (lock, &it.name)).take(20).unzip();
                let from = Moment::now();
                if let Ok(views) = self.locks.look(names).await {
                    self.note_look(from, Which::These(numbers), &views);
                }
                // As a page does that shows them: not at each change.
                sleep(Duration::from_millis(150)).await;
            }
        };
        // It has no end of its own.
        let _: Result<(), _> = timeout(time, following).await;
        true
    }

    fn note_look(&self, from: Moment, asked: Which, views: &[LockView]) {
        let is_held =
            |name: &str| views.iter().any(|view| view.name.as_str() == name && !view.holders.is_empty());
        let locks = (0_u16..).zip(&self.work.locks);
        let held = locks.filter(|(lock, it)| asked.has(*lock) && is_held(&it.name)).map(|(lock, _)| lock);
        let held = Which::These(held.collect());
        self.journal.note(&Event::Looked { from: from.as_nanos(), asked, held });
    }

    /// Watches who leads.
    async fn watch(&mut self) -> bool {
        let is_election = |lock: &usize| self.work.locks[*lock].usage == Use::Election;
        let all: Vec<_> = self.locks_of(Pace::Slow).filter(is_election).collect();
        let Some(at) = self.rng.pick(&all).copied() else { return true };
        let (lock, watch) = (u16::try_from(at).unwrap_or(u16::MAX), self.journal.number());
        let election = self.locks.election(&self.work.locks[at].name);
        let mut leaders = election.watch();
        let watching = async {
            while let Some(Ok(leader)) = leaders.next().await {
                let token = leader.map_or(0, |leader| leader.token.get());
                self.journal.note(&Event::Saw { lock, watch, token });
            }
        };
        // As long as it takes to see a change.
        let _ = timeout(self.rng.clone().millis(500, 4_000), watching).await;
        true
    }

    /// Comes with a wrong password, or to a server of something else.
    async fn knock(&mut self) -> bool {
        let url = std::env::var(URL).unwrap_or_default();
        let from = Moment::now();
        let answer = if self.rng.chance(400) {
            let greeting = self.rng.pick(&GREETINGS).copied().unwrap_or_default();
            let Some((port, _server)) = wrong_server(greeting).await else { return true };
            let Some(url) = with_wrong_servers(&url, port) else { return true };
            match connect(&url).await {
                Knocked::Refused(_) => "refused".to_owned(),
                other => other.told(),
            }
        } else {
            let Some((url, is_checked)) = with_wrong_password(&url, self.rng.chance(500)) else {
                return true;
            };
            match connect(&url).await {
                Knocked::LetIn if !is_checked && !self.work.checks_logins => "open".to_owned(),
                other => other.told(),
            }
        };
        self.journal.note(&Event::Knocked { from: from.as_nanos(), answer });
        true
    }

    /// Prints what programs print in their logs: the client, a handle, and what the store says about itself.
    fn print(&self) {
        let lock = self.work.locks.first().map(|lock| &*lock.name).unwrap_or_default();
        let (locks, endings) = (&self.locks, self.locks.endings());
        check_printed(&format!("{locks:?} {:?} {endings:?}", locks.mutex(lock)), lock);
        check_printed(&format!("{lock} {:?} {:?}", locks.concerns(), locks.notes()), lock);
    }
}

/// What is printed has one line, names what it is about and has no password. Else this process ends, which is found.
pub(super) fn check_printed(printed: &str, about: &str) {
    let url = std::env::var(URL).unwrap_or_default();
    let login = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let password = login.and_then(|(login, _)| login.split_once(':')).map(|(_, password)| password);
    // As a word: a short password may be part of a longer one.
    let mut words = printed.split(|letter: char| !letter.is_alphanumeric());
    let tells = password.is_some_and(|password| words.any(|word| !password.is_empty() && word == password));
    if printed.contains('\n') || !printed.contains(about) || tells {
        output::complain(&format!("printed: {printed}"));
        std::process::abort();
    }
}

/// What servers of something else say first. Some say nothing, and some go away.
const GREETINGS: [&[u8]; 5] =
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0; 64], &[0xff; 64], &[b'R', 0, 0, 0, 2, 0, 0, 0, 0], b""];

/// How a connection went.
enum Knocked {
    LetIn,
    Refused(Error),
    NoAnswer,
}

impl Knocked {
    fn told(self) -> String {
        match self {
            Self::LetIn => "ok".to_owned(),
            Self::Refused(error) if error.to_string().contains(WRONG) => "tells-password".to_owned(),
            Self::Refused(error) if error.kind() == ErrorKind::Denied => "Denied".to_owned(),
            // With all it says, for those who read the history.
            Self::Refused(error) => format!("{:?}: {error}", error.kind()),
            Self::NoAnswer => "none".to_owned(),
        }
    }
}

async fn connect(url: &str) -> Knocked {
    match timeout(REFUSED, Locks::builder(url).label("stranger").connect()).await {
        Ok(Ok(_)) => Knocked::LetIn,
        Ok(Err(error)) => Knocked::Refused(error),
        Err(_) => Knocked::NoAnswer,
    }
}

/// A server of something else, and its port, at all addresses of this machine. It goes with what is returned. Nothing where
/// no port can be had.
async fn wrong_server(greeting: &'static [u8]) -> Option<(u16, JoinSet<()>)> {
    let listener = TcpListener::bind("0.0.0.0:0").await.ok()?;
    let port = listener.local_addr().ok()?.port();
    let mut server = JoinSet::new();
    server.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Who does not listen any more has heard enough.
            let _ = stream.write_all(greeting).await;
            sleep(Duration::from_millis(200)).await;
        }
    });
    Some((port, server))
}

/// The scheme of a URL, its servers, and what follows them. Nothing if its store has none.
fn apart(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let plain = scheme.split('+').next()?;
    let mut stores = Locks::stores().iter();
    stores.find(|store| {
        store.schemes.iter().any(|known| *known == scheme || *known == plain) && store.needs_server
    })?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    Some((scheme, authority.rsplit('@').next()?, after))
}

/// As many servers of something else as the URL has servers.
fn with_wrong_servers(url: &str, port: u16) -> Option<String> {
    let (scheme, hosts, after) = apart(url)?;
    let hosts: Vec<_> =
        (1..).zip(hosts.split(',')).map(|(number, _)| format!("127.0.0.{number}:{port}")).collect();
    Some(format!("{scheme}://{STRANGER}:{WRONG}@{}{after}", hosts.join(",")))
}

/// The URL with a login that nobody has, and whether the store is asked to look at it.
fn with_wrong_password(url: &str, is_other_way: bool) -> Option<(String, bool)> {
    let (scheme, hosts, after) = apart(url)?;
    // Where the store may check a login or not, as the URL says.
    let store = Locks::stores().iter().find(|store| store.schemes.contains(&scheme));
    let has_ways = store.is_some_and(|store| store.options.iter().any(|option| option.name == AUTH.0));
    let is_asked = is_other_way && after.is_empty() && has_ways;
    let way = if is_asked { format!("/torture?{}={}", AUTH.0, AUTH.1) } else { String::new() };
    Some((format!("{scheme}://{STRANGER}:{WRONG}@{hosts}{after}{way}"), is_asked))
}

/// Whether a store looks at logins. Some do not unless they are told to. Nothing if it did not say.
pub(super) async fn checks_logins(url: &str) -> Option<bool> {
    let (url, _) = with_wrong_password(url, false)?;
    match connect(&url).await {
        Knocked::LetIn => Some(false),
        Knocked::Refused(error) if error.kind() == ErrorKind::Denied => Some(true),
        Knocked::Refused(_) | Knocked::NoAnswer => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_password_takes_the_place_of_the_right_one() {
        for (url, with) in [
            ("redis://a:1", "redis://S@a:1"),
            ("postgres://u:p@w@a:1,b:2/x?y", "postgres://S@a:1,b:2/x?y"),
            ("redis+cluster://a:1", "redis+cluster://S@a:1"),
            ("zookeeper://a:1", "zookeeper://S@a:1"),
        ] {
            let with = with.replace('S', "torture-stranger:not-the-password");
            assert_eq!(with_wrong_password(url, false), Some((with, false)));
        }
        let (url, is_asked) = with_wrong_password("zookeeper://a:1", true).unwrap();
        assert!(url.ends_with("@a:1/torture?auth=sasl") && is_asked);
        assert_eq!(with_wrong_password("file:///x", false), None);
        assert_eq!(with_wrong_password("file:/x", false), None);
    }

    #[test]
    fn wrong_servers_are_as_many_as_the_right_ones() {
        let url = with_wrong_servers("redlock://a:1,b:2,c:3?x=1", 9).unwrap();
        assert!(url.ends_with("@127.0.0.1:9,127.0.0.2:9,127.0.0.3:9?x=1"), "{url}");
        assert_eq!(with_wrong_servers("memory:", 9), None);
    }
}
