//! `tidelock serve` over its Unix socket: what a stream that holds a lock takes of its memory, and how much longer a
//! lock and its release take than in process.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use test_servers::Redis;
use tidelock::{Locks, testing::Clock};

use super::{limit, runtime, serving::Serve};
use crate::contest::machine;

/// Pairs of one kind before it is the other kind's turn.
const PAIRS: usize = 500;
/// Pairs before the first turn.
const WARM_UP: usize = 200;
/// A server that does not answer for this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many streams, and how often pairs are measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Streams, each with a connection and a lock of its own
    #[arg(long, default_value_t = 2_000)]
    streams: usize,
    /// Turns of 500 pairs in process and 500 over the socket
    #[arg(long, default_value_t = 10)]
    rounds: usize,
}

/// What pairs of one kind took, in µs.
struct Turn {
    median: f64,
    /// Processor time of `tidelock serve` for a pair.
    served: f64,
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let said = |error: io::Error| error.to_string();
    let redis = Redis::new().start().map_err(|error| error.to_string())?;
    let mut kept = true;
    {
        let serve = Serve::start(redis.url())?;
        let before = machine::memory(serve.pid());
        let held = hold(args.streams, &serve.socket).map_err(said)?;
        let memory = machine::memory(serve.pid());
        println!("{} streams that hold a lock on Redis:", held.len());
        println!(
            "  memory of a stream                 {:>9.2} KiB, and {:.1} MiB without streams",
            (memory - before) / 1_024.0 / held.len() as f64,
            mib(before)
        );
        kept &= limit("memory of the server", mib(memory), 50.0, "MiB");
    }
    let serve = Serve::start(redis.url())?;
    // As on two machines: the store on a core of its own, client and server on another.
    redis.pid().into_iter().for_each(|pid| machine::pin(pid, 0));
    machine::pin(serve.pid(), 1);
    machine::pin(std::process::id(), 1);
    let mut client = Client::open(&serve.socket).map_err(said)?;
    let runtime = runtime()?;
    let locks = runtime.block_on(Locks::connect(redis.url())).map_err(|error| error.to_string())?;
    let in_process = |count| {
        turn(count, &serve, || {
            let pair = async { locks.mutex("pair").lock().await?.release().await };
            runtime.block_on(pair).map_err(|error| error.to_string())
        })
    };
    let mut over_socket = |count| turn(count, &serve, || client.pair("pair").map_err(said));
    in_process(WARM_UP)?;
    over_socket(WARM_UP)?;
    let (mut alone, mut served, mut more, mut worked) = (vec![], vec![], vec![], vec![]);
    for _ in 0..args.rounds {
        let (one, other) = (in_process(PAIRS)?, over_socket(PAIRS)?);
        alone.push(one.median);
        served.push(other.median);
        more.push(other.median - one.median);
        worked.push(other.served);
    }
    println!("A lock and its release, median of {} turns:", args.rounds);
    println!("  in process                         {:>9.2} µs", median(&mut alone));
    println!("  over the socket                    {:>9.2} µs", median(&mut served));
    println!("  processor time of the server       {:>9.2} µs", median(&mut worked));
    kept &= limit("more over the socket", median(&mut more), 150.0, "µs");
    Ok(kept)
}

fn mib(bytes: f64) -> f64 {
    bytes / 1_024.0 / 1_024.0
}

/// Opens streams, each with a lock of its own.
fn hold(count: usize, socket: &Path) -> io::Result<Vec<Client>> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let open = |number| -> io::Result<Client> {
        let mut client = Client::open(socket)?;
        client.lock(&format!("held/{number}"))?;
        Ok(client)
    };
    (0..count).map(open).collect()
}

fn turn(count: usize, serve: &Serve, mut pair: impl FnMut() -> Result<(), String>) -> Result<Turn, String> {
    let clock = Clock::machine();
    let worked = machine::worked(&[serve.pid()]);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = clock.now();
        pair()?;
        times.push(clock.now().since(start).as_secs_f64() * 1e6);
    }
    let served = (machine::worked(&[serve.pid()]) - worked) * 1e6 / count as f64;
    Ok(Turn { median: median(&mut times), served })
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A connection that locks and releases in one request, as `docs/serve.md` says: the least that a client does.
struct Client {
    stream: UnixStream,
    text: Vec<u8>,
}

impl Client {
    fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, text: Vec::new() })
    }

    fn lock(&mut self, name: &str) -> io::Result<()> {
        let head = "Host: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked";
        let request = format!("POST /v1/locks/{name} HTTP/1.1\r\n{head}\r\n\r\n3\r\n{{}}\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        self.read_to(b"}\n\r\n")?;
        self.expect(br#""event":"granted""#)
    }

    fn pair(&mut self, name: &str) -> io::Result<()> {
        self.lock(name)?;
        self.stream.write_all(b"12\r\n{\"end\":\"release\"}\n\r\n0\r\n\r\n")?;
        self.read_to(b"\r\n0\r\n\r\n")?;
        self.expect(br#""event":"released""#)
    }

    /// Reads to this end, and forgets what was read before.
    fn read_to(&mut self, end: &[u8]) -> io::Result<()> {
        self.text.clear();
        let mut piece = [0; 1_024];
        while !self.text.ends_with(end) {
            match self.stream.read(&mut piece)? {
                0 => return Err(io::Error::other("the server closed the connection")),
                size => self.text.extend_from_slice(&piece[..size]),
            }
        }
        Ok(())
    }

    fn expect(&self, what: &[u8]) -> io::Result<()> {
        if self.text.windows(what.len()).any(|part| part == what) {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&self.text).into_owned()))
    }
}
