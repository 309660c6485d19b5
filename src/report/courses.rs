//! What each of several devices does in a training step: as text, as JSON and as a picture.

use std::fmt::Write;

use serde::Serialize;

use super::chart::escaped;
use crate::parallel::course::{Doing, Span};

/// What one device does in a training step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceCourse {
    /// As `device.use` names it.
    pub device: String,
    /// Its first and its last stage.
    pub stages: [String; 2],
    /// Seconds that it works and waits for nobody.
    pub busy: f64,
    /// All that it does.
    pub spans: Vec<Span>,
}

/// What is called work; the rest is waiting.
const WORK: [Doing; 6] = [
    Doing::Forward,
    Doing::Recomputation,
    Doing::Backward,
    Doing::Loss,
    Doing::Optimizer,
    Doing::Send,
];

impl DeviceCourse {
    /// That of `device`, whose first and last stages these are.
    pub fn new(device: String, stages: [String; 2], spans: Vec<Span>) -> Self {
        let busy = spans.iter().map(|span| {
            let seconds = span.end - span.begin;
            // Sums of norms are waited for inside of a stage's work, and weights inside of the optimizer's.
            match span.doing {
                Doing::Norms | Doing::Weights => -seconds,
                doing if WORK.contains(&doing) => seconds,
                _ => 0.0,
            }
        });
        let busy = busy.sum::<f64>().max(0.0);
        Self { device, stages, busy, spans }
    }
}

/// Seconds until the last device has done the step.
fn seconds(devices: &[DeviceCourse]) -> f64 {
    devices.iter().flat_map(|device| &device.spans).map(|span| span.end).fold(0.0, f64::max)
}

/// A line for each device: how long it works, and what it waits for.
pub fn lines(devices: &[DeviceCourse]) -> String {
    let all = seconds(devices);
    let mut text = format!("# devices over a step of {:.2} ms\n", 1e3 * all);
    for DeviceCourse { device, stages: [first, last], busy, spans } in devices {
        let of = |doing: Doing| {
            let spans = spans.iter().filter(|span| span.doing == doing);
            1e3 * spans.map(|span| span.end - span.begin).sum::<f64>()
        };
        let _ = writeln!(
            text,
            "# {device:8} {first} … {last}: works {:.0}% of the time; waits {:.2} ms for stages, {:.2} ms for \
             norms, {:.2} ms for gradients and weights",
            100.0 * busy / all.max(f64::MIN_POSITIVE),
            of(Doing::Receive),
            of(Doing::Norms),
            of(Doing::Gradients) + of(Doing::Weights),
        );
    }
    text
}

const LEFT: f64 = 150.0;
const WIDTH: f64 = 1000.0;
const TOP: f64 = 70.0;
const ROW: f64 = 44.0;
/// What is drawn of a row.
const BAR: f64 = 30.0;

/// The devices below each other over the time of a step, as an SVG file: a bar for each piece of work, with the
/// number of its micro-batch where there is room, and nothing where a device waits.
pub fn to_svg(title: &str, devices: &[DeviceCourse]) -> String {
    let all = seconds(devices).max(f64::MIN_POSITIVE);
    let height = TOP + ROW * devices.len() as f64 + 60.0;
    let width = LEFT + WIDTH + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{0}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"22\" \
         font-size=\"15\">{0}</text>\n",
        escaped(title)
    );
    legend(&mut svg);
    for (row, device) in devices.iter().enumerate() {
        draw(&mut svg, device, TOP + ROW * row as f64, all);
    }
    axis(&mut svg, TOP + ROW * devices.len() as f64, all);
    svg + "</svg>\n"
}

fn legend(svg: &mut String) {
    let mut x = LEFT;
    for (doing, name) in NAMES {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" \
             y=\"46\">{name}</text>",
            colour(doing),
            x + 17.0
        );
        x += 32.0 + 7.0 * name.len() as f64;
    }
}

fn draw(svg: &mut String, device: &DeviceCourse, y: f64, all: f64) {
    let [first, last] = &device.stages;
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"{}\">{}</text><text x=\"8\" y=\"{}\" font-size=\"9\">{}</text>\n<rect \
         x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{BAR}\" fill=\"#f2f2f2\"/>",
        y + 14.0,
        escaped(&device.device),
        y + 26.0,
        escaped(&format!("{first} … {last}")),
    );
    // What is waited for inside of a piece of work comes on top of it.
    let mut spans: Vec<&Span> = device.spans.iter().collect();
    spans.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(b.end.total_cmp(&a.end)));
    for Span { doing, stage, micro, begin, end } in spans {
        let [x, wide] = [LEFT + WIDTH * begin / all, WIDTH * (end - begin) / all];
        let name = NAMES.iter().find(|(known, _)| known == doing).map_or("", |(_, name)| name);
        let stage = stage.as_ref().map(|stage| format!(" {stage}")).unwrap_or_default();
        let of = micro.map(|micro| format!(", micro-batch {micro}")).unwrap_or_default();
        let told = escaped(&format!("{name}{stage}{of}: {:.3} ms", 1e3 * (end - begin)));
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{BAR}\" fill=\"{}\" stroke=\"white\" \
             stroke-width=\"0.3\"><title>{told}</title></rect>",
            wide.max(0.2),
            colour(*doing),
        );
        if let Some(micro) = micro.filter(|_| wide > 14.0) {
            let middle = x + wide / 2.0;
            let _ = writeln!(
                svg,
                "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\" \
                 fill=\"white\">{micro}</text>",
                y + 19.0
            );
        }
    }
}

fn axis(svg: &mut String, y: f64, all: f64) {
    for tick in 0..=5 {
        let share = f64::from(tick) / 5.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{:.2}</text>",
            LEFT + WIDTH * share,
            y + 14.0,
            1e3 * all * share
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">time, ms</text>",
        LEFT + WIDTH / 2.0,
        y + 34.0
    );
}

const NAMES: [(Doing, &str); 10] = [
    (Doing::Forward, "forward"),
    (Doing::Recomputation, "recomputation"),
    (Doing::Backward, "backward"),
    (Doing::Loss, "loss"),
    (Doing::Optimizer, "optimizer"),
    (Doing::Send, "send"),
    (Doing::Receive, "waiting for stages"),
    (Doing::Gradients, "gradients"),
    (Doing::Norms, "norms"),
    (Doing::Weights, "weights"),
];

/// Work is dark, waiting is light.
fn colour(doing: Doing) -> &'static str {
    match doing {
        Doing::Forward => "#1f77b4",
        Doing::Recomputation => "#17becf",
        Doing::Backward => "#2f7d32",
        Doing::Loss => "#9467bd",
        Doing::Optimizer => "#8c564b",
        Doing::Send => "#444444",
        Doing::Receive => "#dddddd",
        Doing::Gradients => "#f5a623",
        Doing::Norms => "#ffd9a0",
        Doing::Weights => "#e6c9a8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(doing: Doing, begin: f64, end: f64) -> Span {
        Span { doing, stage: Some("a<b".to_owned()), micro: Some(0), begin, end }
    }

    #[test]
    fn a_device_is_busy_while_it_works_and_waits_for_nobody() {
        let spans = vec![
            span(Doing::Norms, 0.1, 0.2),
            span(Doing::Forward, 0.0, 0.5),
            span(Doing::Receive, 0.5, 0.9),
            span(Doing::Backward, 0.9, 1.0),
        ];
        let stages = ["stem", "heads"].map(str::to_owned);
        let device = DeviceCourse::new("cpu:0".to_owned(), stages, spans);
        assert!((device.busy - 0.5).abs() < 1e-12, "{}", device.busy);
        let told = lines(std::slice::from_ref(&device));
        assert!(told.contains("works 50% of the time; waits 400.00 ms for stages"), "{told}");
        let svg = to_svg("two & two", &[device]);
        // One for the page, one for the row, one for each entry of the legend and each span.
        assert_eq!(svg.matches("<rect").count(), 2 + NAMES.len() + 4);
        assert!(svg.contains("two &amp; two") && svg.contains("a&lt;b"), "{svg}");
    }
}
