//! `cargo xtask torture`: runs `tidelock torture` against servers of our own, which fail as servers do.

mod administrator;
mod coverage;
mod entries;
mod folder;
mod hook;
mod list;
mod many;
mod mutants;
mod packets;
mod pairs;
mod redlock;
mod runs;
mod stand;
mod table;

use std::{
    fs,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::Parser;

use self::{packets::Network, stand::STANDS};

/// Torture the stores with servers of our own; every run is checked from its histories
#[derive(Debug, Parser)]
#[command(name = "cargo xtask torture", bin_name = "cargo xtask torture")]
struct Args {
    /// A deployment, several with commas, or all
    #[arg(long, value_name = "NAME", default_value = "all", value_delimiter = ',')]
    backend: Vec<String>,
    /// How long each is tortured
    #[arg(long = "for", value_name = "TIME", default_value = "1m")]
    time: String,
    /// Repeat the choices of an earlier run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many client processes
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: u32,
    /// How many locks: those whose holder failed are blocked for a ttl
    #[arg(long, value_name = "N", default_value_t = 36)]
    names: u32,
    /// The ttl of the locks, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    ttl_ms: u64,
    /// How often servers fail
    #[arg(long, value_name = "TIME", default_value = "4s")]
    every: String,
    /// How often a client is killed
    #[arg(long, value_name = "TIME", default_value = "3s")]
    kill: String,
    /// How often a client is stopped
    #[arg(long, value_name = "TIME", default_value = "3s")]
    stop: String,
    /// How often the network of a client breaks
    #[arg(long, value_name = "TIME", default_value = "2s")]
    cut: String,
    /// Faults of servers that do not come
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    without: Vec<String>,
    /// Keep histories and reports here
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the figures of all runs on record into this page in Markdown, between its marks
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Where runs are recorded: a line of JSON for each, with the digest of its histories
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Record the runs whose reports are in this folder, and run nothing
    ///
    /// For runs with --report that were not recorded. They must have been made with this source.
    #[arg(long, value_name = "DIR", requires = "record", conflicts_with_all = ["mutants", "coverage", "skew"])]
    add: Option<PathBuf>,
    /// Make the clocks of clients run fast and slow by so many millionths
    ///
    /// In a copy of the source, as mutants are. The window is promised up to 5000 (half a percent
    /// each way). Not for files, where all clients read the clock of one machine.
    #[arg(long, value_name = "PPM")]
    skew: Option<u32>,
    /// Run mutants instead, each until it is found: their names, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 0.., default_missing_value = "all")]
    mutants: Option<Vec<String>>,
    /// Tell which lines of the engine and the backends were reached
    #[arg(long, conflicts_with_all = ["mutants", "skew"])]
    coverage: bool,
    /// How many runs a mutant gets
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Mutants that were built before, from the same source
    #[arg(long, value_name = "PROGRAM", hide = true)]
    built: Option<PathBuf>,
    /// The command line to use
    #[arg(long, value_name = "PROGRAM", hide = true)]
    tidelock: PathBuf,
}

/// Where the hook finds us.
const SOCKET: &str = "hook";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().collect();
    if let [_, word, socket, fault] = &words[..]
        && word == hook::HOOK
    {
        return hook::call(Path::new(socket), fault);
    }
    if let Some(code) = coverage::run_if_wrapper(&words) {
        return code;
    }
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::from(125)
        }
    }
}

/// Tortures one deployment after the other. Says whether all kept their promises.
fn run(args: &Args) -> Result<bool, String> {
    let wanted = |name: &str| args.backend.iter().any(|wanted| wanted == "all" || wanted == name);
    if let Some(unknown) =
        args.backend.iter().find(|name| *name != "all" && STANDS.iter().all(|(known, _)| known != name))
    {
        let known: Vec<_> = STANDS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no deployment {unknown:?}; known are: {}", known.join(", ")));
    }
    if let Some(folder) = &args.add {
        let is_run = |name: &str| folder.join(name).join("report.json").exists();
        for (name, _) in STANDS.iter().filter(|(name, _)| wanted(name) && is_run(name)) {
            note(args, name, &folder.join(name))?;
        }
        return write_table(args).map(|()| true);
    }
    let network = Network::enter()?;
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let folder = args.report.as_deref().unwrap_or(temporary.path());
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    if let Some(wanted) = &args.mutants {
        return mutants::run(args, network, wanted, folder);
    }
    if args.table.is_some() && args.record.is_none() {
        return Err("the figures are those of a record: name it with --record".to_owned());
    }
    let tidelock = match args.skew {
        Some(_) => args.built.clone().map_or_else(|| mutants::build(Path::new(".")), Ok)?,
        None if args.coverage => coverage::build()?,
        None => args.tidelock.clone(),
    };
    let mut clean = true;
    for (name, open) in STANDS.iter().filter(|(name, _)| wanted(name)) {
        println!("==> {name}");
        let stand = network.around(open(args.ttl_ms).map_err(|error| format!("{name}: {error}"))?);
        let report = folder.join(name);
        let mut command = command(args, &*stand, &report, temporary.path(), &tidelock)?;
        if let Some(skew) = args.skew {
            command.env("TIDELOCK_SKEW", skew.to_string());
        }
        if args.coverage {
            let (name, value) = coverage::variable(folder);
            command.env(name, value);
        }
        if let Some(seed) = args.seed {
            command.args(["--seed", &seed.to_string()]);
        }
        let code = torture(&mut command, &*stand, temporary.path())?;
        if code != Some(0) {
            clean = false;
        }
        if report.join("report.json").exists() {
            // After each, so that a long run that is stopped keeps what was seen.
            note(args, name, &report)?;
            write_table(args)?;
        } else if code == Some(0) {
            return Err(format!("{name}: there is no report"));
        }
        // Else it said why it could not run.
    }
    if args.coverage {
        coverage::report(&tidelock, folder)?;
    }
    if (!clean || args.coverage) && args.report.is_none() {
        // What was found must not be lost with the temporary files.
        println!("histories and reports are kept in {}", temporary.keep().display());
    }
    Ok(clean)
}

/// Records a run, if runs are recorded.
fn note(args: &Args, deployment: &str, report: &Path) -> Result<(), String> {
    let Some(record) = &args.record else { return Ok(()) };
    runs::add(record, &runs::About { deployment, clients: args.clients, ttl_ms: args.ttl_ms }, report)
}

/// Writes the figures of all runs on record into a page, if one is named.
fn write_table(args: &Args) -> Result<(), String> {
    let (Some(page), Some(record)) = (&args.table, &args.record) else { return Ok(()) };
    table::put(page, "figures", &table::markdown(&runs::sums(record)?))
}

/// The command line of one run, without its seed.
fn command(
    args: &Args,
    stand: &dyn stand::Stand,
    report: &Path,
    temporary: &Path,
    tidelock: &Path,
) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(tidelock);
    command
        .args(["torture", "--yes-this-is-a-test-server", "--url", &stand.url(), "--for", &args.time])
        .args(["--clients", &args.clients.to_string(), "--ttl", &format!("{}ms", args.ttl_ms)])
        .args(["--names", &args.names.to_string()])
        .args(["--kill", &args.kill, "--stop", &args.stop, "--cut", &args.cut])
        .arg("--report")
        .arg(report);
    if let Some(long) = stand.long_ttl_ms() {
        command.args(["--long-ttl", &format!("{long}ms")]);
    }
    if stand.doubles() {
        command.arg("--double");
    }
    if !stand.excludes() {
        command.arg("--allow-overlaps");
    }
    let socket = temporary.join(SOCKET);
    let hook = format!("'{}' {} '{}'", program.display(), hook::HOOK, socket.display());
    if !stand.keepers().is_empty() {
        command.args(["--count", &format!("{hook} {}", hook::COUNT)]);
    }
    let mut faults = stand.faults();
    faults.retain(|fault| args.without.iter().all(|without| without != fault));
    if !faults.is_empty() {
        command.args(["--hook", &hook, "--hook-faults", &faults.join(","), "--hook-every", &args.every]);
    }
    Ok(command)
}

/// One run against a deployment. Returns the exit code.
fn torture(command: &mut Command, stand: &dyn stand::Stand, temporary: &Path) -> Result<Option<i32>, String> {
    let text = |error: std::io::Error| error.to_string();
    let socket = temporary.join(SOCKET);
    // Of the run before.
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(text)?;
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    std::thread::scope(|scope| {
        scope.spawn(|| hook::serve(&listener, stand));
        let status = child.wait().map_err(text);
        // Ends the thread: it takes this for its last word.
        hook::end(&socket).map_err(text)?;
        Ok(status?.code())
    })
}
