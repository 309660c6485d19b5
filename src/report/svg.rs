//! Curves as an SVG file.

use std::fmt::Write;

use crate::memory::measure::Timeline;

/// A named line.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What the legend calls it.
    pub name: String,
    /// Abscissa and ordinate, from left to right; neither is below 0.
    pub points: Vec<(f64, f64)>,
}

/// Curves over common axes, which begin at 0.
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
    /// The memory over a step under each strategy, by its name.
    pub fn memory(title: &str, strategies: &[(String, Timeline)]) -> Self {
        let point = |mark: &crate::memory::measure::Mark| {
            Some((mark.seconds * 1e3, mark.live? as f64 / f64::from(1 << 20)))
        };
        let curve = |(name, timeline): &(String, Timeline)| Curve {
            name: name.clone(),
            points: timeline.marks.iter().filter_map(point).collect(),
        };
        Self {
            title: title.to_owned(),
            x: "time, ms".to_owned(),
            y: "memory in use, MiB".to_owned(),
            curves: strategies.iter().map(curve).collect(),
        }
    }

    /// The picture as an SVG file.
    pub fn to_svg(&self) -> String {
        let most = |pick: fn(&(f64, f64)) -> f64| {
            let points = self.curves.iter().flat_map(|curve| &curve.points);
            points.map(pick).filter(|number| number.is_finite()).fold(0.0, f64::max)
        };
        let (x, y) = (Axis::upto(most(|point| point.0)), Axis::upto(most(|point| point.1)));
        let [width, height] = SIZE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        self.write_axes(&mut svg, &x, &y);
        let mut line = 0;
        for (number, curve) in self.curves.iter().enumerate() {
            write_curve(&mut svg, number, curve, &x, &y);
            line += write_legend(&mut svg, number, line, &curve.name);
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

fn style(number: usize) -> String {
    let colour = COLOURS[number % COLOURS.len()];
    let dashes = if number < COLOURS.len() { "" } else { " stroke-dasharray=\"6 3\"" };
    format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}")
}

/// The curve as steps: what a point says holds until the next.
fn write_curve(svg: &mut String, number: usize, curve: &Curve, x: &Axis, y: &Axis) {
    let Frame { left, right, top, bottom } = FRAME;
    let mut path = String::new();
    let finite = curve.points.iter().filter(|point| point.0.is_finite() && point.1.is_finite());
    for (place, &(abscissa, ordinate)) in finite.enumerate() {
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

/// The curve's name beside a sample of it, from `line` of the legend on; how many lines it takes.
fn write_legend(svg: &mut String, number: usize, line: usize, name: &str) -> usize {
    let Frame { right, top, .. } = FRAME;
    let height = |line: usize| top + 10.0 + 20.0 * line as f64;
    let sample = format!("M{} {}H{}", right + 16.0, height(line), right + 40.0);
    let _ = writeln!(svg, "<path d=\"{sample}\" {}/>", style(number));
    let parts = wrapped(name);
    for (place, part) in parts.iter().enumerate() {
        text(svg, [right + 48.0, height(line + place) + 4.0], "", part);
    }
    parts.len()
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

/// An axis from 0 on, with a tick at every multiple of `step`, the last of which is its end.
struct Axis {
    step: f64,
    steps: u32,
}

impl Axis {
    /// About five steps of 1, 2 or 5 times a power of ten, to `most` or just above.
    fn upto(most: f64) -> Self {
        if most <= 0.0 {
            return Self { step: 1.0, steps: 1 };
        }
        let rough = most / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| round * power >= rough * 0.999);
        let step = round.unwrap_or(10.0) * power;
        Self { step, steps: (most / step).ceil().max(1.0) as u32 }
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        (0..=self.steps).map(move |number| {
            let number = f64::from(number) * self.step;
            (number, format!("{number:.digits$}"))
        })
    }

    /// Where `number` lies between `begin` and `end` of the axis.
    fn place(&self, number: f64, begin: f64, end: f64) -> f64 {
        begin + number / (self.step * f64::from(self.steps)) * (end - begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::measure::Mark;

    #[test]
    fn axes_end_at_a_round_number_just_above_all() {
        let ticks = |most| Axis::upto(most).ticks().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(ticks(2412.0), ["0", "500", "1000", "1500", "2000", "2500"]);
        assert_eq!(ticks(1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(ticks(0.0), ["0", "1"]);
        for most in [1e-3, 0.7, 3.0, 4.99, 5.0, 5.01, 99.0, 7.3e10] {
            let axis = Axis::upto(most);
            let end = axis.step * f64::from(axis.steps);
            assert!(end >= most * 0.999 && end < most * 1.5 && axis.steps <= 6, "{most}: {end}");
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

    #[test]
    fn memory_is_drawn_as_steps_under_axes_with_units_and_a_legend() {
        let mib = |count: u64| Some(count << 20);
        let strategies = [
            ("none".to_owned(), timeline(&[mib(100), mib(400), mib(100)])),
            ("a < b & c".to_owned(), timeline(&[mib(100), None, mib(200)])),
        ];
        let svg = Chart::memory("ResNet-18", &strategies).to_svg();
        // 640 across for 20 ms, 376 up for 400 MiB.
        assert!(svg.contains("d=\"M80.0 330.0H400.0V48.0H720.0V330.0\""), "{svg}");
        assert!(svg.contains("d=\"M80.0 330.0H720.0V236.0\""), "{svg}");
        for words in ["time, ms", "memory in use, MiB", "ResNet-18", ">none<", "a &lt; b &amp; c"] {
            assert!(svg.contains(words), "{words}");
        }
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
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
        let names = ["a".repeat(50), "second".to_owned()];
        let svg = Chart::memory("", &names.map(|name| (name, Timeline::default()))).to_svg();
        // Behind the three lines of the first.
        assert!(svg.contains("y=\"122.0\" >second<"), "{svg}");
    }

    #[test]
    fn a_chart_without_points_has_axes_still() {
        let svg = Chart::memory("nothing", &[("none".to_owned(), Timeline::default())]).to_svg();
        assert!(svg.contains(">none<") && !svg.contains("NaN"), "{svg}");
    }
}
