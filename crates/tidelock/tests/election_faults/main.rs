//! Elections on every store under faults: five candidates in processes of their own, leaders that are killed, stopped
//! past their ttl, cut off for longer than it and evicted, servers that are restarted and that fail over.
//!
//! Candidates write down when they knew that they led. The history checker then shows that no two of them led at the
//! same time and that terms grow. `TIDELOCK_ELECTION_CHANGES=2000` runs until so many leaders have changed.
//!
//! How long nobody led after a fault is reported and not asserted: it depends on what else the machine does.

#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod observers;
#[allow(dead_code, clippy::unwrap_used, reason = "a part of the tests of MySQL, which use all of it")]
#[path = "../mysql_store/relay.rs"]
mod relay;
mod stands;
mod worker;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use stands::{FAILING_OVER, STANDS, Stand};
use test_servers::Proxy;
use tidelock::{
    Leader, Locks, Name, Token,
    backend::Share,
    testing::{
        Clock,
        history::{self, Hold},
    },
};
use worker::{LABEL, LOG, NAME, TTL, URL};

/// How many candidates.
const CANDIDATES: usize = 5;

/// How many leaders have changed at the end, if nothing else is asked for.
const CHANGES: usize = 200;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if worker::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Each has six processes and a server.
    arguments.test_threads.get_or_insert(2);
    let led = STANDS.into_iter().chain(FAILING_OVER).map(|(store, open)| {
        Trial::test(format!("{store}::no_two_lead_at_once_terms_grow_and_no_candidate_is_lost"), move || {
            runtime()?.block_on(play(store, open()?))
        })
    });
    let observed = STANDS.into_iter().map(|(store, open)| {
        Trial::test(format!("{store}::observers_miss_no_change_and_show_no_stale_leader"), move || {
            runtime()?.block_on(observers::play(store, open()?))
        })
    });
    libtest_mimic::run(&arguments, led.chain(observed).collect()).exit_code()
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What happens to the leader, or to its store.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    /// Stopped past its ttl.
    Stop,
    /// Cut off from the servers for longer than its ttl.
    CutOff,
    Evict,
    /// Evicts a leader that does not know yet that it leads.
    EvictUnaware,
    /// All servers are restarted.
    Restart,
    /// The server that leads is killed, and another one takes over.
    FailOver,
}

async fn play(store: &str, stand: Stand) -> Result<(), Failed> {
    let asked = std::env::var("TIDELOCK_ELECTION_CHANGES").ok().and_then(|text| text.parse().ok());
    // Faults are spread over the changes; most leaders end on their own.
    let (changes, rounds) = match asked.unwrap_or(CHANGES) {
        changes if stand.goes_on => (changes, (changes / 40).max(stand.faults.len())),
        _ => (20 * stand.faults.len(), stand.faults.len()),
    };
    let folder = tempfile::tempdir()?;
    let mut cast = Cast::new(&stand.url, folder.path());
    let locks = Locks::connect_within(&stand.url, PATIENCE).await?;
    let (mut longest, mut told) = (Duration::ZERO, Vec::new());
    for (round, fault) in (1..=rounds).zip(stand.faults.iter().cycle()) {
        let leader = cast.someone_leads(&locks).await;
        told.push((fault, Clock::machine().now().as_nanos()));
        let mut began = Instant::now();
        match fault {
            Fault::Kill => cast.kill(&leader),
            Fault::Stop => cast.stand_still(&leader, &locks).await,
            Fault::CutOff => cast.cut_off(&leader, &stand.doors).await,
            Fault::Evict => cast.evict(&locks).await?,
            Fault::EvictUnaware => cast.evict_unaware(&locks).await?,
            Fault::Restart => stand.restart()?,
            Fault::FailOver => stand.fail_over()?,
        }
        if matches!(fault, Fault::Restart | Fault::FailOver) {
            // Nobody can lead before the servers are back.
            began = Instant::now();
        }
        let before = cast.terms();
        cast.until("terms go on", || cast.terms() > before).await;
        longest = longest.max(began.elapsed());
        cast.until("changes", || cast.terms() >= changes * round / rounds).await;
    }
    // Nobody is lost: each leads again.
    let led = cast.terms_of_each();
    cast.until("each candidate leads again", || cast.terms_of_each().iter().all(|(who, n)| n > &led[who]))
        .await;
    cast.end();
    let holds = cast.history();
    let terms = holds.len();
    let checked = if stand.excludes {
        history::check(&holds).map_err(|breach| breach.to_string())
    } else {
        grow(&holds)
    };
    checked.map_err(|breach| format!("{breach}; faults: {told:?}; evicted: {:?}", cast.evicted))?;
    println!("{store}: {terms} terms, {rounds} faults, at most {longest:?} until the next term after one");
    Ok(())
}

/// Terms grow in the order in which candidates began to lead.
fn grow(holds: &[Hold]) -> Result<(), String> {
    let mut terms: Vec<_> = holds.iter().map(|hold| (hold.got, hold.token)).collect();
    terms.sort_unstable();
    match terms.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
        Some(pair) => Err(format!("term {} was followed by {}", pair[0].1, pair[1].1)),
        None => Ok(()),
    }
}

/// The candidates.
struct Cast {
    url: String,
    folder: PathBuf,
    running: HashMap<String, Child>,
    /// Terms that were ended by force, and when. An evicted leader hears of it a moment after the next one leads, so
    /// what it does in between counts for nothing: tokens are the protection there.
    evicted: HashMap<Token, u64>,
}

impl Cast {
    fn new(url: &str, folder: &Path) -> Self {
        let mut cast = Self {
            url: url.to_owned(),
            folder: folder.to_owned(),
            running: HashMap::new(),
            evicted: HashMap::new(),
        };
        for candidate in 0..CANDIDATES {
            cast.start(&format!("candidate-{candidate}"));
        }
        cast
    }

    fn start(&mut self, label: &str) {
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program)
            .env(URL, &self.url)
            .env(LABEL, label)
            .env(LOG, self.folder.join(label))
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts");
        self.running.insert(label.to_owned(), child);
    }

    /// Waits until somebody leads.
    async fn someone_leads(&self, locks: &Locks) -> Leader {
        let began = Instant::now();
        loop {
            // A store that is being restarted does not answer.
            if let Ok(Some(leader)) = locks.election(NAME).leader().await {
                assert_eq!(leader.advertised.as_deref(), Some(&*format!("http://{}", leader.label)));
                return leader;
            }
            assert!(began.elapsed() < PATIENCE, "nobody leads");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Kills a candidate, and starts another one in its place.
    fn kill(&mut self, leader: &Leader) {
        let mut child = self.running.remove(&*leader.label).expect("it runs");
        child.kill().and_then(|()| child.wait()).expect("it is killed");
        self.start(&leader.label);
    }

    /// Puts out the leader of now.
    async fn evict(&mut self, locks: &Locks) -> tidelock::Result<()> {
        let seen = locks.look([NAME]).await?;
        let holder = seen.first().and_then(|view| view.holders.first());
        if let Some((holder, token)) = holder.and_then(|holder| Some((holder, holder.token()?))) {
            self.evicted.insert(token, Clock::machine().now().as_nanos());
            locks.evict(NAME, holder.id, "by hand").await?;
        }
        Ok(())
    }

    /// Stops the next candidate at the moment at which the store makes it the leader, evicts it, and lets it go on when
    /// another one leads. It may then learn first that it leads, and a moment later that it does not.
    async fn evict_unaware(&mut self, locks: &Locks) -> tidelock::Result<()> {
        let began = Instant::now();
        let mut next = None;
        loop {
            assert!(began.elapsed() < PATIENCE, "nobody comes to lead");
            let seen = locks.look([NAME]).await?;
            let Some(view) = seen.first() else { continue };
            // The holder was a waiter a moment ago: it hears of its grant about now.
            if let Some(leader) = view.holders.iter().find(|holder| Some(holder.id) == next)
                && let Some(token) = leader.token()
            {
                let pid = self.pid(&leader.label);
                kill_process(pid, Signal::STOP).expect("it runs");
                let before = self.terms();
                self.evicted.insert(token, Clock::machine().now().as_nanos());
                locks.evict(NAME, leader.id, "before it knew").await?;
                self.until("others lead meanwhile", || self.terms() > before).await;
                kill_process(pid, Signal::CONT).expect("it is there");
                return Ok(());
            }
            next = view.waiters.first().map(|waiter| waiter.id);
        }
    }

    fn pid(&self, label: &str) -> Pid {
        Pid::from_raw(self.running[label].id().cast_signed()).expect("a process id")
    }

    /// Stops a candidate until another one leads, and lets it go on.
    async fn stand_still(&self, leader: &Leader, locks: &Locks) {
        let pid = self.pid(&leader.label);
        kill_process(pid, Signal::STOP).expect("it runs");
        // If it led when it was stopped, nobody does until its lease ends.
        let before = self.terms();
        self.until("others lead meanwhile", || self.terms() > before).await;
        drop(self.someone_leads(locks).await);
        kill_process(pid, Signal::CONT).expect("it is there");
    }

    /// Cuts a candidate off until its lease has ended and others lead, and lets it come back.
    async fn cut_off(&self, leader: &Leader, doors: &[Proxy]) {
        let process = self.running[&*leader.label].id();
        doors.iter().for_each(|door| door.refuse(process));
        let (began, before) = (Instant::now(), self.terms());
        self.until("others lead meanwhile", || began.elapsed() > TTL && self.terms() > before).await;
        doors.iter().for_each(|door| door.welcome(process));
    }

    fn end(&mut self) {
        for child in self.running.values_mut() {
            // One that has ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    async fn until(&self, what: &str, is: impl Fn() -> bool) {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What each candidate wrote: its terms, and when it first and last knew that it led.
    fn written(&self) -> BTreeMap<String, BTreeMap<u64, (u64, u64)>> {
        let labels = (0..CANDIDATES).map(|candidate| format!("candidate-{candidate}"));
        labels
            .map(|label| {
                let text = std::fs::read_to_string(self.folder.join(&label)).unwrap_or_default();
                let mut terms = BTreeMap::new();
                // The last line may be half of one.
                for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
                    let (token, at) = line.split_once(' ').expect("two numbers");
                    let at: u64 = at.parse().expect("a number");
                    let term = terms.entry(token.parse().expect("a number")).or_insert((at, at));
                    term.1 = at;
                }
                (label, terms)
            })
            .collect()
    }

    fn terms_of_each(&self) -> HashMap<String, usize> {
        self.written().into_iter().map(|(label, terms)| (label, terms.len())).collect()
    }

    fn terms(&self) -> usize {
        self.terms_of_each().values().sum()
    }

    /// All terms, as holds of a lock. A term was asked for, at the latest, when it began.
    fn history(&self) -> Vec<Hold> {
        let name = Name::new(NAME).expect("a name");
        let written = self.written();
        let terms = written
            .values()
            .enumerate()
            .flat_map(|(client, terms)| terms.iter().map(move |term| (client, term)));
        // A leader that was evicted before it knew that it led may still believe it for a moment, as any evicted one.
        let began_too_late =
            |token: u64, got: u64| self.evicted.get(&Token::from_u64(token)).is_some_and(|at| got >= *at);
        terms
            .filter(|(_, (token, (got, _)))| !began_too_late(**token, *got))
            .map(|(client, (token, (got, used)))| Hold {
                name: name.clone(),
                client,
                share: Share::Exclusive,
                owner: None,
                token: Token::from_u64(*token),
                asked: *got,
                got: *got,
                got_at: Duration::from_nanos(*got),
                used: self.evicted.get(&Token::from_u64(*token)).map_or(*used, |at| *used.min(at)),
                usable: true,
            })
            .collect()
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        self.end();
    }
}
