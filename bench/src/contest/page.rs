//! RESULTS.md: what matters of each store in one table; everything else is in charts and in JSON.

use std::{fmt::Write, fs, path::Path};

use super::{
    chart,
    report::by_scenario,
    results::{Kind, Outcome, Row},
    scenario::title,
    stores::STORES,
    verdicts::{self, Verdict},
};

/// The scenarios that most users ask about.
const MATTER: &[&str] = &["pair", "tasks", "processes", "distinct", "held", "killed", "flash-sale"];

/// Writes the page and its charts.
pub(super) fn write(folder: &Path, outcomes: &[Outcome]) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder.join("results")).map_err(said)?;
    for outcome in outcomes {
        let file = folder.join("results").join(format!("{}.svg", outcome.store));
        fs::write(file, chart::draw(outcome)).map_err(said)?;
    }
    fs::write(folder.join("RESULTS.md"), page(outcomes)).map_err(said)
}

const ABOUT: &str = "\
What a lock costs with tidelock, with the fewest commands that could do it (\"bare commands\": no
queue, no token, no check), and with other libraries. All of them run on the same server in the same
minutes, on a machine with two cores: go by the ratios, which say how many times as good tidelock
was. Above 1 it is ahead. [NOTES.md](NOTES.md) explains the numbers that look odd, and
[peers/README.md](../peers/README.md) what each program does.

Written by `cargo xtask bench --peers --write bench`; `cargo xtask bench report` writes it again from
the numbers in `results/`.
";

const READING: &str = "\
<details>
<summary>How the numbers are made</summary>

All contestants of a scenario are programs that get the same requests. They take turns in rounds. A
number is the median of the rounds. The ratio is the median of the rounds' ratios with its
quartiles. Bars are those that the project set itself; against another library, the bar is to be
ahead.

In `pair` and `try`, the server has one core and the clients another, as on two machines. In `work`,
both share one core, so that everything they do counts, and nothing that they wait for. Left alone,
the kernel switches between the two. In `processes`, only locks that came from another process
count: a client that polls acquires a lock again and again while others sleep.

</details>
";

fn page(outcomes: &[Outcome]) -> String {
    let mut text = format!("# Results\n\n{ABOUT}\n{READING}");
    for outcome in outcomes {
        // Writing to a string does not fail.
        let _ = write!(text, "\n## {}\n\n{}", outcome.store, store(outcome));
    }
    text + &missed(outcomes) + &changes(outcomes)
}

/// The table of a store, and all of its numbers.
fn store(outcome: &Outcome) -> String {
    let bare = STORES.iter().find(|store| store.name == outcome.store).map_or("", |store| store.bare);
    let about = &outcome.about;
    let mut text = format!("On {}; {}. Bare commands: {bare}.\n\n", about.server, about.machine);
    text += "| | tidelock | ÷ bare commands | ÷ best other library |\n|---|---|---|---|\n";
    for (scenario, rows) in by_scenario(outcome).iter().filter(|(scenario, _)| MATTER.contains(scenario)) {
        let Some(ours) = rows.iter().find(|row| row.kind == Kind::Ours) else { continue };
        let value = ours.value.map_or_else(|| "–".to_owned(), |value| ours.unit.show(value.median));
        let bare = rows.iter().find(|row| row.kind == Kind::Bare).and_then(|row| row.ahead);
        let bare = bare.map_or_else(|| "–".to_owned(), |ahead| ratio(ahead.median));
        let _ = writeln!(text, "| {} | {value} | {bare} | {} |", title(scenario), best(rows));
    }
    let _ = write!(
        text,
        "\n<details>\n<summary>All scenarios, as a chart</summary>\n\n![What each contestant reached on {0}](results/{0}.svg)\n\n</details>\n\nAll numbers: [{0}.json](results/{0}.json).\n",
        outcome.store
    );
    text
}

/// The library that came closest, or is ahead.
fn best(rows: &[&Row]) -> String {
    let peers: Vec<_> = rows
        .iter()
        // A sale under one lock of ours is no other library.
        .filter(|row| row.kind == Kind::Peer && !row.contestant.starts_with("tidelock"))
        .filter_map(|row| Some((row.ahead?.median, &row.contestant)))
        .collect();
    let best = peers.iter().min_by(|(a, _), (b, _)| a.total_cmp(b));
    match best {
        None => "–".to_owned(),
        Some((ahead, name)) if peers.len() == 1 => format!("{} ({name})", ratio(*ahead)),
        Some((ahead, name)) => format!("{} ({name}, best of {})", ratio(*ahead), peers.len()),
    }
}

fn ratio(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") }
}

/// The bars that were missed, by what can be done about them.
fn missed(outcomes: &[Outcome]) -> String {
    let rows = outcomes.iter().flat_map(|outcome| outcome.rows.iter().map(|row| (&*outcome.store, row)));
    let rows: Vec<_> = rows.filter(|(_, row)| row.bar.is_some()).collect();
    let missed: Vec<_> = rows.iter().filter(|(_, row)| !row.is_met()).collect();
    let met = rows.len() - missed.len();
    let mut text = format!("\n## Bars\n\n{met} of {} bars are met.", rows.len());
    if missed.is_empty() {
        return text + "\n";
    }
    text += " The others:\n";
    let mut groups: Vec<(Verdict, Vec<String>)> = Vec::new();
    for (store, row) in missed {
        let verdict = verdicts::of(store, row);
        let against = if row.kind == Kind::Ours { "itself" } else { &row.contestant };
        let is = row.ahead.map_or_else(String::new, |ahead| format!(" {:.2}", ahead.median));
        let bar = row.bar.as_ref().map(|bar| bar.text.as_str()).unwrap_or_default();
        let line = format!("- {store}, {} against {against}:{is} (bar {bar})", row.scenario);
        match groups.iter_mut().find(|(of, _)| *of == verdict) {
            Some((_, lines)) => lines.push(line),
            None => groups.push((verdict, vec![line])),
        }
    }
    groups.sort_by_key(|(verdict, _)| match verdict {
        Verdict::Can(_) => 0,
        Verdict::Unexamined => 1,
        Verdict::Cannot(_) => 2,
    });
    for (verdict, lines) in groups {
        let _ = write!(text, "\n**{}** ({})\n\n{}\n", verdict.text(), lines.len(), lines.join("\n"));
    }
    text
}

/// How far two runs were apart.
fn changes(outcomes: &[Outcome]) -> String {
    let rows = outcomes.iter().flat_map(|outcome| &outcome.rows);
    let mut changes: Vec<f64> = rows.filter_map(Row::change).collect();
    changes.sort_by(f64::total_cmp);
    let (Some(most), Some(middle)) = (changes.last(), changes.get(changes.len() / 2)) else {
        return String::new();
    };
    let within = changes.iter().filter(|change| **change < 0.15).count();
    format!(
        "\nAgainst the run before, {within} of {} ratios changed by less than 15 %. The median change was\n{:.0} %, the largest {:.0} %.\n",
        changes.len(),
        middle * 100.0,
        most * 100.0
    )
}
