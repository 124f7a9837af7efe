//! A page of SVG for each store: who reached what, scenario by scenario. Readable on a light and on a dark
//! page.

use std::fmt::Write;

use super::{
    report::by_scenario,
    results::{Kind, Outcome, Row, Unit},
    scenario::title,
};

const WIDTH: f64 = 960.0;
const LABELS: f64 = 230.0;
const BARS: f64 = 520.0;
const LINE: f64 = 21.0;

const STYLE: &str = "
  .page { fill: #ffffff }
  text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif; font-size: 13px; fill: #1c2733 }
  .title { font-size: 22px; font-weight: 650 }
  .head { font-size: 15px; font-weight: 600 }
  .soft { fill: #5b6876 }
  .right { text-anchor: end }
  .own { font-weight: 650 }
  .ours { fill: #0f8f6b } .bare { fill: #9aa7b4 } .peer { fill: #2f6fde }
  @media (prefers-color-scheme: dark) {
    .page { fill: #12181f }
    text { fill: #e6ebf0 }
    .soft { fill: #9dabb9 }
    .ours { fill: #35c79b } .bare { fill: #66737f } .peer { fill: #6ea3ff }
  }
";

/// Bars by their logarithm: contestants differ by thousands.
pub(super) fn draw(outcome: &Outcome) -> String {
    let scenarios: Vec<(&str, Vec<&Row>)> = by_scenario(outcome)
        .into_iter()
        .map(|(name, rows)| (name, rows.into_iter().filter(|row| row.value.is_some()).collect::<Vec<_>>()))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let mut body = String::new();
    let mut y = 84.0;
    for (name, rows) in &scenarios {
        y = scenario(&mut body, y, name, rows);
    }
    let height = y + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"Locks on {}\">\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        outcome.store
    );
    text(&mut svg, 32.0, 40.0, "title", &format!("Locks on {}", outcome.store));
    text(
        &mut svg,
        32.0,
        62.0,
        "soft",
        "Bars by their logarithm. Green: tidelock; grey: the fewest commands that could do it; blue: others.",
    );
    svg + &body + "</svg>\n"
}

fn scenario(svg: &mut String, top: f64, name: &str, rows: &[&Row]) -> f64 {
    let values: Vec<(f64, &Row)> =
        rows.iter().filter_map(|row| Some((row.value?.median.max(1e-9), *row))).collect();
    let less_is_better = rows.first().is_some_and(|row| row.unit != Unit::PerSecond);
    let most = values.iter().map(|(value, _)| *value).fold(f64::MIN, f64::max);
    let least = values.iter().map(|(value, _)| *value).fold(f64::MAX, f64::min);
    // The shortest bar is a tenth of the decade below the least.
    let floor = (least / 3.0).log10();
    let length = |value: f64| BARS * (value.log10() - floor) / (most.log10() - floor).max(0.1);
    let head = format!("{}{}", title(name), if less_is_better { " (less is better)" } else { "" });
    text(svg, 32.0, top + 18.0, "head", &head);
    let mut y = top + 30.0;
    for (value, row) in values {
        let (class, own) = match row.kind {
            Kind::Ours => ("ours", "own right"),
            Kind::Bare => ("bare", "right"),
            Kind::Peer => ("peer", "right"),
        };
        text(svg, LABELS - 10.0, y + 14.0, own, &row.contestant);
        let width = length(value).clamp(2.0, BARS);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"3\"/>",
            y + 2.0,
            LINE - 5.0
        );
        let ratio = row.ahead.map(|ahead| match ahead.median {
            ratio if ratio < 10.0 => format!("   tidelock: {ratio:.2} ×"),
            ratio => format!("   tidelock: {ratio:.0} ×"),
        });
        let label = row.unit.show(value) + &ratio.unwrap_or_default();
        text(svg, LABELS + width + 8.0, y + 14.0, "soft", &label);
        y += LINE;
    }
    y + 16.0
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>");
}
