//! The clients in Python and Node: they are installed as users install them, and their tests run against real servers.

use std::{
    env,
    fs::{self, Permissions},
    io::{BufRead, BufReader, Write, stdout},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use test_servers::{Certificates, Etcd, Postgres};

use super::counts::Counts;
use crate::run;

/// What tests of the Python client need, at versions that are known to agree.
const PYTHON: [&str; 3] = ["pytest==8.4.2", "mypy==1.18.2", "schemathesis==4.32.5"];

/// The Debian packages that are missing. Programs that were installed in another way count.
pub(super) fn missing() -> Vec<&'static str> {
    let mut packages = Vec::new();
    let mut venv = Command::new("python3");
    let has_venv = venv.args(["-c", "import venv, ensurepip"]).output().is_ok_and(|out| out.status.success());
    if !has_venv {
        packages.push("python3-venv");
    }
    packages.extend(
        [("nodejs", "node"), ("npm", "npm")]
            .iter()
            .filter_map(|(package, program)| (!run::is_installed(program)).then_some(*package)),
    );
    packages
}

/// Runs the tests of both clients with the command line that was built, and counts them.
pub(super) fn verify(root: &Path, counts: &mut Counts) -> Result<(), String> {
    let target = run::target(&run::metadata(root)?)?;
    let binary = target.join("debug/tidelock");
    let folder = target.join("clients/certificates");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Certificates::write(&folder).map_err(|error| error.to_string())?;
    // Both wait for servers most of the time. What Node prints is shown when Python has ended.
    let (python, node) = thread::scope(|scope| {
        let node = scope.spawn(|| {
            let (mut counts, mut out) = (Counts::default(), Vec::new());
            let done = node(root, &binary, &folder, &mut counts, &mut out);
            (done, counts, out)
        });
        (python(root, &target.join("clients"), &binary, &folder, counts), node.join())
    });
    let Ok((node, of_node, out)) = node else { return Err("the tests of Node panicked".to_owned()) };
    // The reader of our output may be gone; the count still matters for the exit code.
    let _ = stdout().write_all(&out);
    counts.add(&of_node);
    python.and(node)
}

fn python(
    root: &Path,
    folder: &Path,
    binary: &Path,
    certificates: &Path,
    counts: &mut Counts,
) -> Result<(), String> {
    let client = root.join("clients/python");
    let venv = folder.join("venv");
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Fresh, so that what is installed is what was just built.
    let mut create = Command::new("python3");
    run::run(create.args(["-m", "venv", "--clear"]).arg(&venv))?;
    let program = |name: &str| Command::new(venv.join("bin").join(name));
    let mut install = program("pip");
    install.args(["install", "--quiet", "--disable-pip-version-check"]).args(PYTHON).arg(&client);
    run::run(install.env("TIDELOCK_BINARY", binary))?;

    let mut mypy = program("mypy");
    let typed =
        run::run(mypy.args(["--strict", "--cache-dir"]).arg(folder.join("mypy")).current_dir(&client));
    counts.add_step(typed.is_ok());

    let described = openapi(root, &venv, &folder.join("openapi"), binary);
    counts.add_step(described.is_ok());

    let start = |error: test_servers::Error| error.to_string();
    let (etcd, postgres) = (Etcd::new().start().map_err(start)?, Postgres::new().start().map_err(start)?);
    let mut pytest = program("python");
    // The package that was installed, with its binary: the sources are in a folder of their own.
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]).current_dir(&client);
    pytest.env("TIDELOCK_TEST_ETCD", etcd.url()).env("TIDELOCK_TEST_POSTGRES", postgres.url());
    pytest.env("TIDELOCK_TEST_CERTIFICATES", certificates);
    pytest.env("PATH", path_with(&venv)).env_remove("TIDELOCK_BINARY");
    let success = run::stream(&mut pytest, &mut stdout(), |line| counts.see_pytest(line))?;
    if success { typed.and(described) } else { Err("tests of the Python client failed".to_owned()) }
}

/// Tries all calls of a server as its description says, with values that it allows and others.
fn openapi(root: &Path, venv: &Path, folder: &Path, binary: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the server for schemathesis: {error}");
    // What an earlier run left behind would be held, or sold.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(failed)?;
    let token = folder.join("token");
    let secret = "a token of the tests".replace(' ', "-");
    fs::write(&token, &secret)
        .and_then(|()| fs::set_permissions(&token, Permissions::from_mode(0o600)))
        .map_err(failed)?;
    let mut server = Command::new(binary)
        .args(["serve", "--listen", "tcp:127.0.0.1:0", "--until-stdin-closes", "--token-file"])
        .arg(&token)
        .args(["--url", &format!("file:{}", folder.join("locks").display())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(said) = server.stdout.take() {
        BufReader::new(said).read_line(&mut line).map_err(failed)?;
    }
    let address = line.split('"').find_map(|word| word.strip_prefix("tcp:")).unwrap_or_default();
    let mut schemathesis = Command::new(venv.join("bin/schemathesis"));
    schemathesis.arg("--config-file").arg(root.join("clients/schemathesis.toml")).arg("run");
    schemathesis.arg(format!("http://{address}/v1/openapi.json"));
    schemathesis.args(["--header", &format!("Authorization: Bearer {secret}")]);
    // It has no end of its own.
    schemathesis.args(["--exclude-operation-id", "WatchLeader"]);
    schemathesis.env("PYTHONPATH", root.join("clients")).current_dir(folder);
    let tried = run::run(&mut schemathesis);
    drop(server.stdin.take());
    server.wait().map_err(failed)?;
    tried
}

fn node(
    root: &Path,
    binary: &Path,
    certificates: &Path,
    counts: &mut Counts,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let client = root.join("clients/node");
    let npm = |args: &[&str]| {
        let mut command = Command::new("npm");
        command.args(args).current_dir(&client).env("TIDELOCK_BINARY", binary);
        command.env("TIDELOCK_TEST_CERTIFICATES", certificates);
        command
    };
    run::run(&mut npm(&["ci", "--no-audit", "--no-fund", "--silent"]))?;
    let typed = run::run(&mut npm(&["run", "--silent", "types"]));
    counts.add_step(typed.is_ok());
    let success = run::stream(&mut npm(&["test", "--silent"]), out, |line| counts.see_node(line))?;
    if success { typed } else { Err("tests of the Node client failed".to_owned()) }
}

/// The path, with the programs of the virtual environment first.
fn path_with(venv: &Path) -> std::ffi::OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = [venv.join("bin")].into_iter().chain(env::split_paths(&path)).collect();
    env::join_paths(folders).unwrap_or(path)
}
