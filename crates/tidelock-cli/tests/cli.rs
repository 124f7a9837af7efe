//! What is printed, as a shell sees it.

mod common;

use std::process::Stdio;

use common::{output, stderr, stdout, tidelock};

#[test]
fn stores_prints_a_table_with_the_store_in_memory() {
    let output = output(&["stores"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.lines().next().is_some_and(|head| head.starts_with("STORE ")), "{text}");
    let memory = text.lines().find(|line| line.starts_with("memory ")).unwrap_or_default();
    assert_eq!(memory.split_whitespace().take(3).collect::<Vec<_>>(), ["memory", "memory:", "process"]);
    let redis = text.lines().filter(|line| line.starts_with("redis ")).collect::<Vec<_>>();
    assert!(redis[0].contains(" redis://HOST ") && redis[1].contains("rediss+cluster"), "{text}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn stores_prints_the_same_as_json() {
    let output = output(&["stores", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let stores: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(stores[0]["store"], "file");
    let memory = &stores[1];
    assert_eq!((&memory["store"], &memory["token"]), (&"memory".into(), &"process".into()));
    assert_eq!((&memory["push"], &memory["min_ttl_ms"]), (&true.into(), &20.into()));
    assert_eq!((&stores[2]["store"], &stores[2]["schemes"][0]), (&"redis".into(), &"redis".into()));
    assert_eq!((&stores[3]["store"], &stores[3]["schemes"][1]), (&"redlock".into(), &"redlocks".into()));
    assert_eq!((&stores[4]["store"], &stores[4]["schemes"][1]), (&"etcd".into(), &"etcds".into()));
    assert_eq!((&stores[5]["store"], &stores[5]["schemes"][2]), (&"zookeeper".into(), &"zk".into()));
    assert_eq!((&stores[6]["store"], &stores[6]["schemes"][1]), (&"postgres".into(), &"postgresql".into()));
    assert_eq!((&stores[7]["store"], &stores[7]["schemes"][1]), (&"mysql".into(), &"mariadb".into()));
    assert_eq!(stores.as_array().map(Vec::len), Some(8));
}

#[test]
fn stores_lists_the_options_of_urls() {
    let listed = output(&["stores", "--options"]);
    assert_eq!((listed.status.code(), stderr(&listed).as_str()), (Some(0), ""));
    let text = stdout(&listed);
    for line in
        ["memory", "  no options", "redis", "  longest_ttl_ms  the longest ttl that any client may ask for"]
    {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line:?} in {text}");
    }
    let stores = common::json(&["stores", "--options", "--json"]);
    let option = |store: usize, option: usize| &stores[store]["options"][option];
    assert_eq!(option(0, 0)["name"], "allow");
    assert_eq!((&option(2, 0)["name"], &option(2, 0)["default"]), (&"prefix".into(), &"tidelock:".into()));
    assert_eq!(stores[1]["options"].as_array().map(Vec::len), Some(0));
    assert!(output(&["stores", "--json"]).stdout.windows(9).all(|part| part != b"\"options\""));
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = output(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), format!("tidelock {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_shows_an_example_and_the_exit_codes() {
    for args in [&["--help"][..], &["help"], &["-h"]] {
        let output = output(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let text = stdout(&output);
        assert!(text.contains("Examples:\n  tidelock run"), "{text}");
        assert!(text.contains("125  tidelock itself failed"), "{text}");
    }
}

#[test]
fn whatever_was_typed_wrongly_is_explained_and_exits_with_125() {
    for (args, names) in [
        (&["unlock-everything"][..], "unlock-everything"),
        (&["stores", "--yaml"], "--yaml"),
        (&["stores", "memory:"], "memory:"),
        (&["--quiet"], "--quiet"),
        (&[], "Usage: tidelock"),
    ] {
        let output = output(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(stderr(&output).contains(names), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = tidelock(["stores"]).stdout(writer).stderr(Stdio::piped()).output().expect("runs");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure_and_says_so() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = tidelock(["stores"]).stdout(full).stderr(Stdio::piped()).output().expect("runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("tidelock: "), "{}", stderr(&output));
}

#[test]
fn every_verb_has_help_with_an_example() {
    for verb in [
        "run",
        "acquire",
        "renew",
        "release",
        "ls",
        "show",
        "break",
        "doctor",
        "stores",
        "schema",
        "completions",
        "man",
    ] {
        let output = output(&[verb, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{verb}");
        let text = stdout(&output);
        assert!(text.contains("Example") && text.contains(&format!("  tidelock {verb}")), "{text}");
    }
}

#[test]
fn help_does_not_show_the_store_of_the_environment() {
    let output = tidelock(["run", "--help"]).env("TIDELOCK_URL", "redis://:secret@host").output();
    assert!(!stdout(&output.expect("runs")).contains("secret"));
}

#[test]
fn ls_and_show_say_that_nothing_is_held() {
    assert_eq!(stdout(&output(&["ls", "--url", "memory:"])).lines().count(), 1);
    assert_eq!(stdout(&output(&["ls", "--json", "--url", "memory:"])), "[]\n");
    assert_eq!(stdout(&output(&["show", "job", "--url", "memory:"])), "lock \"job\" on memory is free\n");
    let lock = common::json(&["show", "job", "--json", "--url", "memory:"]);
    assert_eq!((&lock["name"], lock["holders"].as_array().map(Vec::len)), (&"job".into(), Some(0)));
}

#[test]
fn show_of_a_free_lock_exits_with_1() {
    for args in [&["show", "job", "--url", "memory:"][..], &["show", "job", "--json", "--url", "memory:"]] {
        let shown = output(args);
        assert_eq!((shown.status.code(), stderr(&shown).as_str()), (Some(1), ""));
    }
}

#[test]
fn options_of_the_store_and_json_may_stand_before_the_verb() {
    let store = common::Store::new();
    let (url, elsewhere) = (store.url(), common::Store::new().url());
    assert!(output(&["--url", &url, "acquire", "job"]).status.success());
    for args in [
        &["--url", &url, "ls"][..],
        &["--url", &elsewhere, "ls", "--url", &url],
        &["--url", &url, "show", "job"],
        &["--url", &url, "run", "other", "--", "sh", "-c", "echo $TIDELOCK_URL job"],
    ] {
        let listed = output(args);
        assert_eq!((listed.status.code(), stderr(&listed).as_str()), (Some(0), ""), "{args:?}");
        assert!(stdout(&listed).contains("job"), "{args:?}: {}", stdout(&listed));
    }
    let listed = common::json(&["--json", "--url", &url, "ls"]);
    assert_eq!(listed[0]["name"], "job");
    for (args, says) in [
        (&["--url", "memory:", "stores"][..], "tidelock stores uses no store"),
        (&["--url-file", "x", "completions", "bash"], "tidelock completions uses no store"),
        (&["--json", "run", "job", "--", "true"], "tidelock run prints no JSON"),
        (&["--json", "man"], "tidelock man prints no JSON"),
    ] {
        let refused = output(args);
        assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(125), ""), "{args:?}");
        assert!(stderr(&refused).contains(says), "{}", stderr(&refused));
    }
}

#[test]
fn a_flag_is_explained_in_one_line() {
    for verb in
        ["run", "acquire", "renew", "release", "elect", "leader", "ls", "show", "break", "doctor", "stores"]
    {
        let help = tidelock([verb, "-h"]).env("COLUMNS", "80").output().expect("runs");
        let help = stdout(&help);
        let options = help.split("Options:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        for line in options.expect("options").lines() {
            assert!(line.trim_start().starts_with('-'), "{verb}: {line:?} goes on");
        }
    }
}

#[test]
fn break_says_when_there_is_nothing_to_break() {
    let output = output(&["break", "job", "--reason", "stuck", "--url", "memory:"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "tidelock: nobody holds lock \"job\" on memory: there is nothing to break\n");
}

#[test]
fn doctor_warns_of_a_store_that_other_processes_cannot_see() {
    let text = output(&["doctor", "--url", "memory:"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(stdout(&text).contains("problem: only this process sees these locks"), "{}", stdout(&text));
    let found = common::json(&["doctor", "--json", "--url", "memory:"]);
    assert_eq!((&found["url"], &found["abilities"]["store"]), (&"memory:".into(), &"memory".into()));
    assert_eq!(found["problems"].as_array().map(Vec::len), Some(1));
}

#[test]
fn completions_name_every_verb() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = output(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let text = stdout(&output);
        assert!(
            ["run", "acquire", "renew", "release", "break", "doctor"].iter().all(|verb| text.contains(verb)),
            "{shell}"
        );
        assert!(!text.contains("__child"), "{shell}");
    }
}

#[test]
fn man_prints_a_page_or_writes_one_per_verb() {
    let page = output(&["man"]);
    assert!(stdout(&page).contains(".TH tidelock 1"), "{}", stdout(&page));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("man1");
    let written = tidelock(["man", "--dir"]).arg(&path).output().expect("runs");
    assert_eq!((written.status.code(), stderr(&written).as_str()), (Some(0), ""));
    for page in ["tidelock.1", "tidelock-run.1", "tidelock-acquire.1", "tidelock-break.1"] {
        assert!(path.join(page).exists(), "{page}");
    }
}

#[test]
fn schema_prints_what_an_administrator_loads() {
    let printed = output(&["schema", "--print", "redis"]);
    assert_eq!(printed.status.code(), Some(0));
    assert!(stdout(&printed).starts_with("#!lua name=tidelock_"), "{}", stdout(&printed));
    let printed = output(&["schema", "--print", "postgres"]);
    assert_eq!(printed.status.code(), Some(0));
    assert!(stdout(&printed).contains("CREATE SCHEMA tidelock;"), "{}", stdout(&printed));
    for (args, says) in [
        (&["schema", "--print", "file"][..], "\"file\" needs no schema"),
        (&["schema", "--print", "oracle"], "no store \"oracle\""),
        (&["schema"], "--print"),
    ] {
        let refused = output(args);
        assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(125), ""), "{args:?}");
        assert!(stderr(&refused).contains(says), "{}", stderr(&refused));
        assert_eq!(stderr(&refused).lines().count(), 1, "{}", stderr(&refused));
    }
}
