//! Which programs the servers need, which Debian packages bring them, and installing those.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Error;

/// The packages and what is used of each: names of programs, or full paths of files.
const PACKAGES: &[(&str, &[&str])] = &[
    ("util-linux", &["setpriv"]),
    ("redis-server", &["redis-server"]),
    ("redis-tools", &["redis-cli"]),
    ("etcd-server", &["etcd"]),
    ("etcd-client", &["etcdctl"]),
    ("zookeeper", &["java", ZOOKEEPER_ENVIRONMENT]),
    ("postgresql", &POSTGRES),
    ("pgbouncer", &["pgbouncer"]),
    ("chromium", &["chromium"]),
    ("chromium-driver", &["chromedriver"]),
    ("mariadb-server", &["mariadbd", "mariadb-install-db", "mariadb-admin", "mariadb"]),
    // Not servers, but tests of the command line use them.
    ("prometheus", &["promtool"]),
    ("tmux", &["tmux"]),
];

/// The programs of PostgreSQL that are used.
const POSTGRES: [&str; 6] = ["initdb", "postgres", "pg_basebackup", "pg_dump", "pg_isready", "psql"];

/// Where the package of ZooKeeper says what the class path of the server is.
pub(crate) const ZOOKEEPER_ENVIRONMENT: &str = "/etc/zookeeper/conf/environment";

/// The file that packages ask before they start their service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Marks a policy as one of ours, so that one left by a killed installation is removed later.
const POLICY_MARK: &str = "tidelock test-servers";

/// Package lists that are older than this name versions the mirrors no longer have.
const LISTS_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The Debian packages that must be installed before every server can start.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    PACKAGES
        .iter()
        .filter(|(_, programs)| programs.iter().any(|program| find(program).is_none()))
        .map(|(package, _)| *package)
        .collect()
}

/// Finds a program in the folders of its package, on the `PATH`, and in the `sbin` folders that
/// the `PATH` of an ordinary user does not have.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The programs of PostgreSQL must be of one version, and those in /usr/bin are slow wrappers.
    let package = POSTGRES.contains(&program).then(postgres_folder).flatten();
    package
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The programs of the newest PostgreSQL that is installed as a server.
fn postgres_folder() -> Option<PathBuf> {
    fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path().join("bin");
            folder.join("postgres").is_file().then_some((version, folder))
        })
        .max()
        .map(|(_, folder)| folder)
}

/// Finds a program, or says which package brings it.
pub(crate) fn require(program: &str) -> Result<PathBuf, Error> {
    find(program).ok_or_else(|| not_installed(program))
}

pub(crate) fn not_installed(program: &str) -> Error {
    let package = PACKAGES
        .iter()
        .find(|(_, programs)| programs.contains(&program))
        .map_or(program, |(package, _)| *package);
    Error::new(format!(
        "{program} is not installed: install the Debian package {package} \
         (`cargo xtask test` installs what is missing)"
    ))
}

/// Installs Debian packages with `apt-get`, as root or through `sudo -n`, without starting the
/// services they bring.
///
/// # Errors
///
/// When there is no `apt-get`, no right to install, or the installation fails; the error holds
/// the end of what `apt-get` wrote.
pub fn install(packages: &[&str]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    let all = packages.join(" ");
    if find("apt-get").is_none() {
        return Err(format!("there is no apt-get on this machine; please install by other means: {all}"));
    }
    as_root(&["true"]).map_err(|error| {
        format!("no right to install packages; please run `apt-get install {all}` as root\n({error})")
    })?;
    let _policy = NoServices::new()?;
    let fresh = lists_are_fresh();
    if !fresh {
        apt(&["update"])?;
    }
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(packages);
    match apt(&args) {
        Err(_) if fresh => {
            // The lists were not as fresh as they looked.
            apt(&["update"])?;
            apt(&args)
        }
        done => done,
    }
}

fn apt(args: &[&str]) -> Result<(), String> {
    let mut command = vec![
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        // Ubuntu would ask which services to restart.
        "NEEDRESTART_SUSPEND=1",
        "apt-get",
        "--quiet",
        // Another installation may be running: wait for it.
        "--option=DPkg::Lock::Timeout=300",
        "--option=Dpkg::Options::=--force-confold",
    ];
    command.extend(args);
    as_root(&command)
}

/// Runs a command as root and returns the end of its output when it fails.
fn as_root(command: &[&str]) -> Result<(), String> {
    let mut words = Vec::new();
    if !rustix::process::geteuid().is_root() {
        words.extend(["sudo", "-n"]);
    }
    words.extend(command);
    let line = words.join(" ");
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{line}` cannot run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(format!("`{line}` failed ({}):\n{tail}", output.status))
}

/// Whether `apt-get update` ran in the last day. A machine made from an image often has no lists
/// at all.
fn lists_are_fresh() -> bool {
    let lists = Path::new("/var/lib/apt/lists");
    let any = fs::read_dir(lists)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_list(&entry.file_name()))));
    // The lists carry the times of the mirror; the folder they are fetched into has that of the
    // last update.
    any && fs::metadata(lists.join("partial"))
        .and_then(|meta| meta.modified())
        .is_ok_and(|time| time.elapsed().unwrap_or_default() < LISTS_LIMIT)
}

fn is_list(name: &OsStr) -> bool {
    name.to_string_lossy().contains("_Packages")
}

/// While it lives, packages that are installed do not start their services: these would hold
/// the memory and the standard ports of the machine, and nobody here uses them.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn new() -> Result<Self, String> {
        match fs::read_to_string(POLICY) {
            // The machine has a policy: it knows better.
            Ok(text) if !text.contains(POLICY_MARK) => return Ok(Self { ours: false }),
            Ok(_) => return Ok(Self { ours: true }),
            Err(_) => {}
        }
        let script = format!("printf '#!/bin/sh\\n# {POLICY_MARK}\\nexit 101\\n' > {POLICY}");
        // The guard exists before the file does, so that a half-made file is removed as well.
        let guard = Self { ours: true };
        as_root(&["sh", "-c", &script])?;
        as_root(&["chmod", "755", POLICY])?;
        Ok(guard)
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours
            && Path::new(POLICY).exists()
            && let Err(error) = as_root(&["rm", "-f", POLICY])
        {
            eprintln!("{POLICY} is left behind: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_program_names_its_package() {
        let text = not_installed("mariadb-admin").to_string();
        assert!(text.contains("Debian package mariadb-server"), "{text}");
    }

    #[test]
    fn a_program_that_exists_nowhere_is_not_found() {
        assert_eq!(find("no-such-program-anywhere"), None);
        assert!(find("sh").is_some());
    }
}
