//! The moments around a violation as a picture: a row per client, bars for waits and windows, faults behind them.

use std::fmt::Write;

use super::{
    check::Violation,
    history::{History, Op, label_of},
    record::Nanos,
    story,
};

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 130.0;
const ROW: f64 = 26.0;
const TOP: f64 = 60.0;
/// More rows nobody reads.
const ROWS: usize = 40;

struct Picture {
    from: Nanos,
    to: Nanos,
    svg: String,
}

impl Picture {
    fn x(&self, at: Nanos) -> f64 {
        let span = (self.to - self.from).max(1) as f64;
        LEFT + (at.clamp(self.from, self.to) - self.from) as f64 / span * WIDTH
    }

    fn bar(&mut self, (from, to): (Nanos, Nanos), (y, height): (f64, f64), class: &str, title: &str) {
        let (x, end) = (self.x(from), self.x(to));
        // Writing to a string does not fail.
        let _ = writeln!(
            self.svg,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{height}"><title>{}</title></rect>"#,
            (end - x).max(1.0),
            escaped(title)
        );
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str) {
        let _ = writeln!(self.svg, r#"<text x="{x:.1}" y="{y:.1}">{}</text>"#, escaped(text));
    }
}

/// Draws it.
pub(super) fn draw(history: &History, violation: &Violation) -> String {
    let (from, to) = story::scene(history, violation);
    let names: Vec<u16> = violation.ops.iter().map(|op| history.ops[*op as usize].name).collect();
    // All requests for the same locks in that time.
    let shown: Vec<(u32, &Op)> = (0_u32..)
        .zip(&history.ops)
        .filter(|(_, op)| names.contains(&op.name) && op.asked <= to && end(op) >= from)
        .collect();
    let mut rows: Vec<u32> = Vec::new();
    let first = violation.ops.iter().map(|op| history.ops[*op as usize].process);
    for process in first.chain(shown.iter().map(|(_, op)| op.process)) {
        if !rows.contains(&process) && rows.len() < ROWS {
            rows.push(process);
        }
    }
    let height = TOP + ROW * (rows.len() + 1) as f64 + 30.0;
    let mut picture = Picture { from, to, svg: String::new() };
    for fault in story::faults_near(history, from, to) {
        let place = rows.iter().position(|process| {
            let process = &history.processes[*process as usize];
            fault.target == label_of(process.client, process.generation)
        });
        let y = TOP + ROW * place.unwrap_or(rows.len()) as f64;
        let title = format!("{} {}", fault.kind, fault.target);
        picture.bar((fault.began, fault.healed.unwrap_or(to)), (y, ROW - 2.0), "fault", &title);
    }
    for (place, process) in rows.iter().enumerate() {
        let process = &history.processes[*process as usize];
        let label = label_of(process.client, process.generation);
        picture.text((8.0, TOP + ROW * place as f64 + 16.0), &label);
    }
    picture.text((8.0, TOP + ROW * rows.len() as f64 + 16.0), "faults");
    for (index, op) in shown {
        let Some(place) = rows.iter().position(|process| *process == op.process) else { continue };
        let y = TOP + ROW * place as f64 + 3.0;
        let title = format!("request {} {} token {}", op.number, op.share, op.token);
        let answered = if op.answered == 0 { to } else { op.answered };
        picture.bar((op.asked, answered), (y + 6.0, 6.0), "wait", &title);
        if op.is_granted() {
            let class = if violation.ops.contains(&index) { "held guilty" } else { "held" };
            let cuts = [op.releasing, op.lost].into_iter().filter(|cut| *cut > 0);
            picture.bar((op.answered, cuts.fold(op.until, Nanos::min)), (y, 18.0), class, &title);
        }
    }
    let at = picture.x(violation.at);
    let _ = writeln!(picture.svg, r#"<line x1="{at:.1}" x2="{at:.1}" y1="{}" y2="{height}"/>"#, TOP - 8.0);
    axis(&mut picture, violation.at, height);
    picture.text((8.0, 20.0), &format!("{} (seed {})", violation.rule, history.plan.seed));
    picture.text((8.0, 38.0), &violation.what);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{height}\" viewBox=\"0 0 {0} {height}\">\n\
         <style>text{{font:12px sans-serif}}.wait{{fill:#b9c4cf}}.held{{fill:#2f7d4f;fill-opacity:.75}}\
         .guilty{{fill:#c0392b}}.fault{{fill:#e8a33d;fill-opacity:.35}}line{{stroke:#c0392b}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{1}</svg>\n",
        LEFT + WIDTH + 20.0,
        picture.svg
    )
}

fn end(op: &Op) -> Nanos {
    if op.answered == 0 { Nanos::MAX } else { op.answered.max(op.freed).max(op.lost).max(op.until) }
}

/// Times below, from the violation.
fn axis(picture: &mut Picture, at: Nanos, height: f64) {
    for part in 0..=8_u64 {
        let when = picture.from + (picture.to - picture.from) / 8 * part;
        let millis = (when as f64 - at as f64) / 1e6;
        let x = picture.x(when);
        picture.text((x - 20.0, height - 8.0), &format!("{millis:+.0} ms"));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
