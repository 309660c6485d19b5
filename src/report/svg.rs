//! Curves as an SVG file.

use std::fmt::Write;

use crate::memory::measure::{Mark, Timeline};
use crate::screen::Bytes;

/// A named line, or points.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What the legend calls it.
    pub name: String,
    /// The figure that it reaches, with its unit, below the name.
    pub figure: String,
    /// How the points are drawn.
    pub shape: Shape,
    /// Abscissa and ordinate, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// How the points of a curve are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As steps: what a point says holds until the next.
    Steps,
    /// Each by itself.
    Dots,
}

impl Curve {
    /// The memory over a step, in MiB over milliseconds.
    pub fn memory(name: &str, figure: String, timeline: &Timeline) -> Self {
        let point = |mark: &Mark| Some((mark.seconds * 1e3, Bytes(mark.live?).mebibytes()));
        let points = timeline.marks.iter().filter_map(point).collect();
        Self { name: name.to_owned(), figure, shape: Shape::Steps, points }
    }
}

/// Curves over common axes, which are as long as the curves need.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Above the curves.
    pub title: String,
    /// What the horizontal axis shows, with its unit.
    pub x: String,
    /// What the vertical axis shows, with its unit.
    pub y: String,
    /// Drawn in this order.
    pub curves: Vec<Curve>,
}

/// The picture, and within it the frame that the curves are drawn in.
const SIZE: [f64; 2] = [960.0, 480.0];
/// Letters of a line of the legend that fit beside the frame, if the font is a wide one.
const LEGEND: usize = 22;
const FRAME: Frame = Frame { left: 80.0, right: 720.0, top: 48.0, bottom: 424.0 };

/// Okabe and Ito's colours, which colour-blind people tell apart; later curves repeat them, dashed.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Chart {
    /// The picture as an SVG file.
    pub fn to_svg(&self) -> String {
        let points = self.curves.iter().flat_map(Curve::drawn);
        let (across, up): (Vec<f64>, Vec<f64>) = points.unzip();
        let (x, y) = (Axis::over(&across), Axis::over(&up));
        let [width, height] = SIZE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        self.write_axes(&mut svg, &x, &y);
        let mut line = 0;
        for (number, curve) in self.curves.iter().enumerate() {
            match curve.shape {
                Shape::Steps => write_steps(&mut svg, number, curve, &x, &y),
                Shape::Dots => write_dots(&mut svg, number, curve, &x, &y),
            }
            line += write_legend(&mut svg, number, line, curve);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn write_axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let Frame { left, right, top, bottom } = FRAME;
        let middle = (left + right) / 2.0;
        for (number, label) in y.ticks() {
            let at = y.place(number, bottom, top);
            line(svg, [left, at, right, at], "#dddddd");
            text(svg, [left - 8.0, at + 4.0], "text-anchor=\"end\"", &label);
        }
        for (number, label) in x.ticks() {
            let at = x.place(number, left, right);
            line(svg, [at, bottom, at, bottom + 5.0], "#444444");
            text(svg, [at, bottom + 20.0], "text-anchor=\"middle\"", &label);
        }
        line(svg, [left, bottom, right, bottom], "#444444");
        line(svg, [left, top, left, bottom], "#444444");
        text(svg, [middle, 26.0], "text-anchor=\"middle\" font-size=\"16\"", &self.title);
        text(svg, [middle, bottom + 42.0], "text-anchor=\"middle\"", &self.x);
        let turned = "text-anchor=\"middle\" transform=\"rotate(-90)\"";
        text(svg, [-(top + bottom) / 2.0, 20.0], turned, &self.y);
    }
}

impl Curve {
    /// The points that can be drawn.
    fn drawn(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.iter().copied().filter(|point| point.0.is_finite() && point.1.is_finite())
    }
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

fn style(number: usize) -> String {
    let dashes = if number < COLOURS.len() { "" } else { " stroke-dasharray=\"6 3\"" };
    format!("fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{dashes}", colour(number))
}

fn write_steps(svg: &mut String, number: usize, curve: &Curve, x: &Axis, y: &Axis) {
    let Frame { left, right, top, bottom } = FRAME;
    let mut path = String::new();
    for (place, (abscissa, ordinate)) in curve.drawn().enumerate() {
        let (across, up) = (x.place(abscissa, left, right), y.place(ordinate, bottom, top));
        let _ = match place {
            0 => write!(path, "M{across:.1} {up:.1}"),
            _ => write!(path, "H{across:.1}V{up:.1}"),
        };
    }
    if !path.is_empty() {
        let _ = writeln!(svg, "<path d=\"{path}\" {}/>", style(number));
    }
}

fn write_dots(svg: &mut String, number: usize, curve: &Curve, x: &Axis, y: &Axis) {
    let Frame { left, right, top, bottom } = FRAME;
    for (abscissa, ordinate) in curve.drawn() {
        dot(svg, [x.place(abscissa, left, right), y.place(ordinate, bottom, top)], number);
    }
}

fn dot(svg: &mut String, [x, y]: [f64; 2], number: usize) {
    let colour = colour(number);
    let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>");
}

/// The curve's name and figure beside a sample of it, from `line` of the legend on; how many lines it
/// takes.
fn write_legend(svg: &mut String, number: usize, line: usize, curve: &Curve) -> usize {
    let Frame { right, top, .. } = FRAME;
    let height = |line: usize| top + 10.0 + 18.0 * line as f64;
    match curve.shape {
        Shape::Steps => {
            let sample = format!("M{} {}H{}", right + 16.0, height(line), right + 40.0);
            let _ = writeln!(svg, "<path d=\"{sample}\" {}/>", style(number));
        }
        Shape::Dots => dot(svg, [right + 28.0, height(line)], number),
    }
    let names = wrapped(&curve.name).into_iter().map(|part| (part, ""));
    let figures = wrapped(&curve.figure).into_iter().map(|part| (part, "fill=\"#666666\""));
    let figures = figures.filter(|(part, _)| !part.is_empty());
    let mut lines = 0;
    for (part, style) in names.chain(figures) {
        text(svg, [right + 48.0, height(line + lines) + 4.0], style, &part);
        lines += 1;
    }
    lines
}

/// `name` in lines that fit beside the curves, parted behind spaces and before braces where there are
/// some.
fn wrapped(name: &str) -> Vec<String> {
    let signs: Vec<char> = name.chars().collect();
    let (mut lines, mut rest) = (Vec::new(), signs.as_slice());
    while rest.len() > LEGEND {
        let parts = |place: &usize| rest[place - 1] == ' ' || rest[*place] == '{';
        let place = (1..=LEGEND).rev().find(parts).unwrap_or(LEGEND);
        let (line, behind) = rest.split_at(place);
        lines.push(line.iter().collect());
        rest = behind;
    }
    lines.push(rest.iter().collect());
    lines
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

fn text(svg: &mut String, [x, y]: [f64; 2], style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}

/// An axis with a tick at multiples of `step`, from `begin` on; the last one is its end.
struct Axis {
    begin: f64,
    step: f64,
    steps: u32,
}

impl Axis {
    /// Up to ten steps of 1, 2 or 5 times a power of ten, from the least of `numbers` or just below to
    /// the greatest or just above.
    fn over(numbers: &[f64]) -> Self {
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if least > most {
            return Self { begin: 0.0, step: 1.0, steps: 1 };
        }
        // A single number stands in the middle.
        let (least, most) = match most > least {
            true => (least, most),
            false if least == 0.0 => (0.0, 1.0),
            false => (least - least.abs() / 2.0, least + least.abs() / 2.0),
        };
        let rough = (most - least) / 8.0;
        let power = 10f64.powf(rough.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| round * power >= rough * 0.999);
        let step = round.unwrap_or(10.0) * power;
        let first = (least / step + 1e-6).floor();
        let last = (most / step - 1e-6).ceil();
        Self { begin: first * step, step, steps: (last - first).max(1.0) as u32 }
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        (0..=self.steps).map(move |number| {
            let number = self.begin + f64::from(number) * self.step;
            (number, format!("{number:.digits$}"))
        })
    }

    /// Where `number` lies between `begin` and `end` of the axis.
    fn place(&self, number: f64, begin: f64, end: f64) -> f64 {
        begin + (number - self.begin) / (self.step * f64::from(self.steps)) * (end - begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::measure::Mark;

    #[test]
    fn axes_span_what_they_show_between_round_numbers() {
        let ticks = |numbers: &[f64]| {
            Axis::over(numbers).ticks().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ticks(&[169.3, 2412.0]), "0 500 1000 1500 2000 2500");
        assert_eq!(ticks(&[1269.4, 1842.9]), "1200 1300 1400 1500 1600 1700 1800 1900");
        assert_eq!(ticks(&[1.0, 1.26]), "1.00 1.05 1.10 1.15 1.20 1.25 1.30");
        assert_eq!(ticks(&[0.0, 1.0]), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(ticks(&[3.0]), "1.5 2.0 2.5 3.0 3.5 4.0 4.5");
        assert_eq!(ticks(&[0.0]), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(ticks(&[]), "0 1");
        for (least, most) in [(0.0, 1e-3), (1.0, 1.26), (0.7, 3.0), (4.99, 5.01), (-3.0, 7.3e10)] {
            let axis = Axis::over(&[most, least]);
            let length = axis.step * f64::from(axis.steps);
            let (begin, end) = (axis.begin, axis.begin + length);
            assert!(begin <= least + 1e-5 * length && most <= end + 1e-5 * length, "{begin} {end}");
            assert!(most - least > length / 2.0, "most of {begin} to {end} is empty");
            assert!(axis.steps <= 10, "{} ticks", axis.steps);
        }
    }

    fn timeline(live: &[Option<u64>]) -> Timeline {
        let mark = |(number, &live): (usize, &Option<u64>)| Mark {
            label: String::new(),
            depth: 0,
            seconds: number as f64 * 0.01,
            live,
        };
        Timeline { marks: live.iter().enumerate().map(mark).collect() }
    }

    fn memory(strategies: &[(&str, Timeline)]) -> String {
        let curve = |(name, timeline): &(&str, Timeline)| {
            Curve::memory(name, "peak 400 MiB".to_owned(), timeline)
        };
        let curves = strategies.iter().map(curve).collect();
        let (x, y) = ("time, ms".to_owned(), "memory in use, MiB".to_owned());
        Chart { title: "ResNet-18".to_owned(), x, y, curves }.to_svg()
    }

    #[test]
    fn memory_is_drawn_as_steps_under_axes_with_units_and_a_legend() {
        let mib = |count: u64| Some(count << 20);
        let svg = memory(&[
            ("none", timeline(&[mib(100), mib(400), mib(100)])),
            ("a < b & c", timeline(&[mib(100), None, mib(200)])),
        ]);
        // 640 across for 20 ms, 376 up for 300 MiB, from 100 on.
        assert!(svg.contains("d=\"M80.0 424.0H400.0V48.0H720.0V424.0\""), "{svg}");
        assert!(svg.contains("d=\"M80.0 424.0H720.0V298.7\""), "{svg}");
        for words in [
            "time, ms",
            "memory in use, MiB",
            "ResNet-18",
            ">none<",
            "a &lt; b &amp; c",
            ">peak 400 MiB<",
        ] {
            assert!(svg.contains(words), "{words}");
        }
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn a_dot_stands_where_its_point_is() {
        let curve = |name: &str, shape, points: &[(f64, f64)]| {
            let (name, figure) = (name.to_owned(), String::new());
            Curve { name, figure, shape, points: points.to_vec() }
        };
        let curves = vec![
            curve("budget", Shape::Steps, &[(1200.0, 1.3), (1800.0, 1.0)]),
            curve("sqrt", Shape::Dots, &[(1500.0, 1.15)]),
        ];
        let (title, x, y) = (String::new(), String::new(), String::new());
        let svg = Chart { title, x, y, curves }.to_svg();
        assert!(svg.contains("<circle cx=\"400.0\" cy=\"236.0\""), "{svg}");
        // The other is the legend's.
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("<path").count(), 2);
    }

    #[test]
    fn long_names_are_parted_where_they_can_be() {
        assert_eq!(wrapped("none"), ["none"]);
        assert_eq!(
            wrapped("checkpointing={sequential={segments=4}}, precision=bf16"),
            ["checkpointing=", "{sequential=", "{segments=4}}, ", "precision=bf16"]
                .map(str::to_owned)
        );
        assert_eq!(wrapped(&"a".repeat(50)).len(), 3);
        let long = "a".repeat(50);
        let svg = memory(&[(&long, Timeline::default()), ("second", Timeline::default())]);
        // Behind the three lines of the first and its figure.
        assert!(svg.contains("y=\"134.0\" >second<"), "{svg}");
    }

    #[test]
    fn a_chart_without_points_has_axes_still() {
        let svg = memory(&[("none", Timeline::default())]);
        assert!(svg.contains(">none<") && !svg.contains("NaN"), "{svg}");
    }
}
