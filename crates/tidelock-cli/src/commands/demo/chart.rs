//! The chart: a page of SVG, written by hand, readable on a light and on a dark page.

use std::fmt::Write;

use super::{
    results::{Outcome, Results, millis},
    way::Way,
};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 690.0;

/// Where the lines of sold over time are.
const PLOT: Frame = Frame { x: 76.0, y: 108.0, width: 800.0, height: 260.0 };

#[derive(Clone, Copy, Debug)]
struct Frame {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

const STYLE: &str = "
  .page { fill: #ffffff }
  text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif; font-size: 14px; fill: #1c2733 }
  .title { font-size: 23px; font-weight: 650 }
  .head { font-size: 15px; font-weight: 600 }
  .soft { fill: #5b6876 }
  .small { font-size: 12.5px }
  .grid { stroke: #e3e8ee; stroke-width: 1 }
  .axis { stroke: #9aa7b4; stroke-width: 1 }
  .limit { stroke: #5b6876; stroke-width: 1.5; stroke-dasharray: 5 4 }
  .line { fill: none; stroke-width: 2.6; stroke-linejoin: round; stroke-linecap: round }
  .no_lock { stroke: #d1343f } .fill_no_lock { fill: #d1343f }
  .one_lock { stroke: #c77700 } .fill_one_lock { fill: #c77700 }
  .counter { stroke: #2f6fde } .fill_counter { fill: #2f6fde }
  .segments { stroke: #0f8f6b } .fill_segments { fill: #0f8f6b }
  .pale { opacity: 0.42 }
  .right { text-anchor: end } .middle { text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    .page { fill: #12181f }
    text { fill: #e6ebf0 }
    .soft { fill: #9dabb9 }
    .grid { stroke: #26313c }
    .axis { stroke: #55636f }
    .limit { stroke: #9dabb9 }
    .no_lock { stroke: #ff6b74 } .fill_no_lock { fill: #ff6b74 }
    .one_lock { stroke: #f2a73b } .fill_one_lock { fill: #f2a73b }
    .counter { stroke: #6ea3ff } .fill_counter { fill: #6ea3ff }
    .segments { stroke: #35c79b } .fill_segments { fill: #35c79b }
  }
";

/// Draws the sales.
pub(super) fn draw(results: &Results) -> String {
    let mut svg = Svg(String::new());
    svg.add(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"A flash sale, four ways\">\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>"
    ));
    svg.text(32.0, 42.0, "title", "A flash sale, four ways");
    let about = format!(
        "{} buyers from {} processes, {} in stock; store: {}",
        grouped(f64::from(results.buyers)),
        results.processes,
        grouped(f64::from(results.stock)),
        results.store
    );
    svg.text(32.0, 67.0, "soft", &about);
    sold_over_time(&mut svg, results);
    bars(&mut svg, results);
    svg.add(format_args!("</svg>"));
    svg.0
}

fn sold_over_time(svg: &mut Svg, results: &Results) {
    let Frame { x, y, width, height } = PLOT;
    let longest = results.ways.iter().map(|way| way.seconds).fold(1e-3, f64::max);
    let most = results.ways.iter().map(|way| way.sold).fold(results.stock, u32::max);
    let (x_step, y_step) = (nice_step(longest / 6.0), nice_step(f64::from(most) / 4.0));
    let top = (f64::from(most) * 1.06).max(1.0);
    let at = |seconds: f64, sold: f64| (x + width * seconds / longest, y + height * (1.0 - sold / top));
    svg.text(32.0, y - 12.0, "head", "Sold over time");
    let mut sold = 0.0;
    while sold <= top {
        let (_, level) = at(0.0, sold);
        svg.add(format_args!("<path class=\"grid\" d=\"M{x:.1} {level:.1}H{:.1}\"/>", x + width));
        svg.text(x - 8.0, level + 4.5, "soft small right", &grouped(sold));
        sold += y_step;
    }
    let mut seconds = 0.0;
    while seconds <= longest * 1.0001 {
        let (along, _) = at(seconds, 0.0);
        let label = format!("{} s", (seconds * 1e3).round() / 1e3);
        svg.text(along, y + height + 19.0, "soft small middle", &label);
        seconds += x_step;
    }
    svg.add(format_args!("<path class=\"axis\" d=\"M{x:.1} {:.1}H{:.1}\"/>", y + height, x + width));
    let (_, limit) = at(0.0, f64::from(results.stock));
    svg.add(format_args!("<path class=\"limit\" d=\"M{x:.1} {limit:.1}H{:.1}\"/>", x + width));
    svg.text(x + width + 8.0, limit + 4.5, "soft small", "in stock");
    for way in &results.ways {
        let mut path = String::new();
        for (index, (seconds, sold)) in way.sold_over_time.iter().enumerate() {
            let (along, level) = at(seconds.min(longest), f64::from(*sold));
            // Writing to a string does not fail.
            let _ = write!(path, "{}{along:.1} {level:.1}", if index == 0 { 'M' } else { 'L' });
        }
        svg.add(format_args!("<path class=\"line {}\" d=\"{path}\"/>", way.way.name()));
    }
}

/// One row for each way, three columns of bars.
fn bars(svg: &mut Svg, results: &Results) {
    let top = PLOT.y + PLOT.height + 62.0;
    let columns = [(190.0, 190.0), (478.0, 120.0), (690.0, 130.0)];
    for ((x, _), head) in
        columns.into_iter().zip(["Buyers a second", "Oversold", "Wait of a buyer, p50 and p99"])
    {
        svg.text(x, top, "head", head);
    }
    svg.text(32.0, top, "head", "Way");
    let fastest = most(results, |way| way.buyers_per_second);
    let worst = most(results, |way| f64::from(way.oversold));
    // Waits differ by thousands: by their logarithm.
    let slowest = most(results, |way| way.wait_ms.p99.max(0.001));
    let length = |ms: f64| ((ms.max(0.001) / 0.001).log10() / (slowest / 0.001).log10().max(1.0)).max(0.01);
    for (index, outcome) in results.ways.iter().enumerate() {
        let y = top + 22.0 + index as f64 * 43.0;
        let (name, middle) = (outcome.way.name(), y + 16.0);
        let title = match outcome.way {
            Way::Segments => format!("{} segments", results.segments),
            way => way.title().to_owned(),
        };
        svg.add(format_args!(
            "<rect class=\"fill_{name}\" x=\"32\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"3\"/>",
            y + 5.0
        ));
        svg.text(52.0, middle, "", &title);
        let [(x, width), (over_x, over_width), (wait_x, wait_width)] = columns;
        let bar = width * outcome.buyers_per_second / fastest;
        svg.bar(x, y, bar, 22.0, name, "");
        svg.text(x + bar + 8.0, middle, "small", &grouped(outcome.buyers_per_second));
        let bar = if outcome.oversold == 0 { 0.0 } else { over_width * f64::from(outcome.oversold) / worst };
        svg.bar(over_x, y, bar, 22.0, name, "");
        svg.text(
            over_x + bar + if bar > 0.0 { 8.0 } else { 0.0 },
            middle,
            "small",
            &grouped(f64::from(outcome.oversold)),
        );
        let (p50, p99) = (outcome.wait_ms.p50, outcome.wait_ms.p99);
        svg.bar(wait_x, y, wait_width * length(p99), 22.0, name, "pale");
        svg.bar(wait_x, y + 5.0, wait_width * length(p50), 12.0, name, "");
        let both = format!("{} / {}", millis(p50), millis(p99));
        svg.text(wait_x + wait_width * length(p99) + 8.0, middle, "small", &both);
    }
    let note = "Without a lock the numbers above are of a shop that sells what it does not have. Waits are drawn by their logarithm.";
    svg.text(32.0, HEIGHT - 22.0, "soft small", note);
}

fn most(results: &Results, of: impl Fn(&Outcome) -> f64) -> f64 {
    results.ways.iter().map(of).fold(1e-9, f64::max)
}

struct Svg(String);

impl Svg {
    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(what);
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>"));
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, name: &str, class: &str) {
        if width > 0.0 {
            let width = width.max(2.0);
            self.add(format_args!(
                "<rect class=\"fill_{name} {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\"/>"
            ));
        }
    }
}

/// 1, 2 or 5 times a power of ten, about as large as this.
fn nice_step(about: f64) -> f64 {
    let power = 10_f64.powf(about.max(1e-6).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= about).unwrap_or(power)
}

/// A whole number with thousands apart.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!([0.0, 999.0, 1_000.0, 1_234_567.4].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        for (about, step) in [(0.013, 0.02), (3.0, 5.0), (1.0, 1.0), (60.0, 100.0)] {
            assert!((nice_step(about) - step).abs() < 1e-9, "{about}");
        }
    }

    #[test]
    fn a_store_with_an_odd_name_breaks_no_chart() {
        let mut svg = Svg(String::new());
        svg.text(0.0, 0.0, "", "<a&b>");
        assert!(svg.0.contains("&lt;a&amp;b&gt;"), "{}", svg.0);
    }
}
