//! Curves over axes, as SVG: a file by itself, or a picture within a page.
//!
//! `plotters` draws them. Here stand what the two have in common: colours that colour-blind people tell
//! apart, round numbers at the axes, and a legend that fits beside the curves.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::memory::measure::{Mark, Timeline};
use crate::screen::Bytes;

/// A curve and what the legend says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What the legend calls it.
    pub name: String,
    /// The figure that it reaches, with its unit, below the name.
    pub figure: String,
    /// How the points are drawn.
    pub shape: Shape,
    /// Abscissa and ordinate, from left to right. Where one is not finite, the curve has a gap.
    pub points: Vec<(f64, f64)>,
}

/// How the points of a curve are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As steps: what a point says holds until the next.
    Steps,
    /// Each by itself.
    Dots,
    /// Joined by straight lines.
    Line,
    /// Joined by straight lines, thin and grey: what others are compared with. Not in the legend.
    Guide,
    /// The area that the points go round, pale, in the colour of the next curve. Not in the legend.
    Area,
}

impl Curve {
    /// The memory over a step, in MiB over milliseconds.
    pub fn memory(name: &str, figure: String, timeline: &Timeline) -> Self {
        let point = |mark: &Mark| Some((mark.seconds * 1e3, Bytes(mark.live?).mebibytes()));
        let points = timeline.marks.iter().filter_map(point).collect();
        Self { name: name.to_owned(), figure, shape: Shape::Steps, points }
    }

    /// Whether the legend names it.
    pub fn is_named(&self) -> bool {
        !matches!(self.shape, Shape::Guide | Shape::Area)
    }

    /// The points that can be drawn, parted at the gaps.
    fn parts(&self) -> impl Iterator<Item = &[(f64, f64)]> {
        let gap = |point: &(f64, f64)| !point.0.is_finite() || !point.1.is_finite();
        self.points.split(gap).filter(|part| !part.is_empty())
    }

    /// The corners of a line through `points`.
    fn corners(&self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        match self.shape {
            Shape::Steps => {
                let steps = points.windows(2).flat_map(|two| [(two[1].0, two[0].1), two[1]]);
                points.first().copied().into_iter().chain(steps).collect()
            }
            _ => points.to_vec(),
        }
    }
}

/// Curves over common axes, which are as long as the curves need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chart {
    /// Above the curves.
    pub title: String,
    /// What the horizontal axis shows, with its unit.
    pub x: String,
    /// What the vertical axis shows, with its unit.
    pub y: String,
    /// Whether the vertical axis begins at 0 or below.
    pub from_zero: bool,
    /// What stands at 0, 1, 2 and so on of the horizontal axis, in place of numbers.
    pub names: Vec<String>,
    /// Drawn in this order.
    pub curves: Vec<Curve>,
}

/// Okabe and Ito's colours, which colour-blind people tell apart; later curves repeat them, dashed.
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
];
const INK: RGBColor = RGBColor(0x44, 0x44, 0x44);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Letters of a line of the legend that fit beside the frame, if the font is a wide one.
const LEGEND: usize = 22;

/// The sizes of a picture, in its own units.
struct Layout {
    width: u32,
    height: u32,
    letters: u32,
    line: u32,
    dot: i32,
    left: u32,
    below: u32,
    above: u32,
    beside: u32,
}

/// By itself, with its title and its legend.
const FILE: Layout = Layout {
    width: 960,
    height: 480,
    letters: 16,
    line: 2,
    dot: 5,
    left: 72,
    below: 48,
    above: 44,
    beside: 240,
};
/// Within a page, which writes title and legend, and shows it half as large on a phone.
const INLINE: Layout = Layout {
    width: 640,
    height: 420,
    letters: 25,
    line: 3,
    dot: 5,
    left: 92,
    below: 68,
    above: 12,
    beside: 24,
};

/// How many numbers an axis has at most.
const PLACES: usize = 7;

impl Layout {
    /// The room left of an axis over `range`: for its name, and for numbers of more than four letters.
    fn left_of(&self, range: &Range<f64>) -> u32 {
        let numbers = RangedCoordf64::from(range.clone()).key_points(PLACES);
        let letters = numbers.iter().map(|number| tick(*number, range).len()).max().unwrap_or(0);
        self.left + letters.saturating_sub(4) as u32 * self.letters * 3 / 5
    }
}

impl Chart {
    /// The picture as an SVG file.
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        let drawn = (|| {
            let area = SVGBackend::with_string(&mut svg, (FILE.width, FILE.height));
            let area = area.into_drawing_area();
            area.fill(&WHITE)?;
            let title = style(&FILE, INK).pos(Pos::new(HPos::Center, VPos::Center));
            let middle = (FILE.left + FILE.width - FILE.beside) as i32 / 2;
            area.draw(&Text::new(self.title.clone(), (middle, 20), title))?;
            self.draw(&area, &FILE)?;
            self.draw_legend(&area)?;
            area.present()
        })();
        drawn.expect("memory takes what is drawn");
        svg
    }

    /// The picture as an element of an HTML page, which screen readers call by the title.
    pub fn to_inline_svg(&self, id: &str) -> String {
        let mut svg = String::new();
        let drawn = (|| {
            let area = SVGBackend::with_string(&mut svg, (INLINE.width, INLINE.height));
            let area = area.into_drawing_area();
            self.draw(&area, &INLINE)?;
            area.present()
        })();
        drawn.expect("memory takes what is drawn");
        // In place of the element that fixes the size.
        let inner = svg.split_once('>').map_or("", |(_, inner)| inner);
        let (Layout { width, height, .. }, title) = (INLINE, escaped(&self.title));
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}\">\
             <title id=\"{id}\">{title}</title>{inner}"
        )
    }

    fn draw(&self, area: &Area, layout: &Layout) -> Drawn {
        let parts = || self.curves.iter().flat_map(Curve::parts).flatten();
        let (x, y) = (span(parts().map(|point| point.0)), span(parts().map(|point| point.1)));
        let low = if self.from_zero { y.start.min(0.0) } else { y.start };
        let room = (y.end - low) * 0.05;
        let x = if self.names.is_empty() { x } else { -0.5..self.names.len() as f64 - 0.5 };
        // Epochs and images are whole numbers, and so are the places between them.
        let is_whole = parts().all(|point| point.0.fract() == 0.0);
        let places = match self.names.len() {
            0 if is_whole => PLACES.min((x.end - x.start) as usize + 1),
            0 => PLACES,
            names => 2 * names,
        };
        let y = if self.from_zero && low == 0.0 { 0.0 } else { low - room }..y.end + room;
        let mut chart = ChartBuilder::on(area)
            .margin_top(layout.above)
            .margin_right(layout.beside)
            // The letters of the left axis's name are taller than the room that they are given.
            .margin_left(4)
            .set_label_area_size(LabelAreaPosition::Left, layout.left_of(&y))
            .set_label_area_size(LabelAreaPosition::Bottom, layout.below)
            .build_cartesian_2d(x.clone(), y.clone())?;
        let labels = style(layout, INK);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(labels.clone())
            .axis_desc_style(labels)
            .x_desc(self.x.clone())
            .y_desc(self.y.clone())
            .x_labels(places)
            .y_labels(PLACES)
            .x_label_formatter(&|number| self.place(*number, &x))
            .y_label_formatter(&|number| tick(*number, &y))
            .draw()?;
        let mut number = 0;
        for curve in &self.curves {
            let colour = COLOURS[number % COLOURS.len()];
            let dashed = number >= COLOURS.len();
            for part in curve.parts() {
                let corners = curve.corners(part);
                let line = colour.stroke_width(layout.line);
                let plane = chart.plotting_area();
                match curve.shape {
                    Shape::Dots => {}
                    // A line through a single point is not seen.
                    Shape::Line if part.len() == 1 => {}
                    Shape::Area => plane.draw(&Polygon::new(corners, colour.mix(0.18)))?,
                    Shape::Guide => plane.draw(&PathElement::new(corners, INK))?,
                    Shape::Steps | Shape::Line if dashed => {
                        plane.draw(&DashedPathElement::new(corners, 8, 5, line))?;
                    }
                    Shape::Steps | Shape::Line => plane.draw(&PathElement::new(corners, line))?,
                }
                let alone = curve.shape == Shape::Line && part.len() == 1;
                if alone || curve.shape == Shape::Dots {
                    for &point in part {
                        plane.draw(&Circle::new(point, layout.dot, colour.filled()))?;
                    }
                }
            }
            number += usize::from(curve.is_named());
        }
        Ok(())
    }

    /// What stands at `number` of the horizontal axis.
    fn place(&self, number: f64, range: &Range<f64>) -> String {
        if self.names.is_empty() {
            return tick(number, range);
        }
        let is_place = (number - number.round()).abs() < 1e-6 && number > -0.5;
        let name = is_place.then(|| self.names.get(number.round() as usize)).flatten();
        name.cloned().unwrap_or_default()
    }

    /// Each curve's name and figure beside a sample of it.
    fn draw_legend(&self, area: &Area) -> Drawn {
        let left = (FILE.width - FILE.beside) as i32 + 16;
        let mut height = FILE.above as i32 + 10;
        for (number, curve) in self.curves.iter().filter(|curve| curve.is_named()).enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let sample = [(left, height), (left + 24, height)];
            let line = colour.stroke_width(FILE.line);
            match curve.shape {
                Shape::Dots => {
                    area.draw(&Circle::new((left + 12, height), FILE.dot, colour.filled()))?;
                }
                _ if number < COLOURS.len() => area.draw(&PathElement::new(sample, line))?,
                _ => area.draw(&DashedPathElement::new(sample, 6, 3, line))?,
            }
            let names = wrapped(&curve.name).into_iter().map(|part| (part, BLACK));
            let figures = wrapped(&curve.figure).into_iter().map(|part| (part, INK));
            for (part, colour) in names.chain(figures).filter(|(part, _)| !part.is_empty()) {
                let style = style(&FILE, colour).pos(Pos::new(HPos::Left, VPos::Center));
                area.draw(&Text::new(part, (left + 32, height), style))?;
                height += 18;
            }
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn style(layout: &Layout, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", layout.letters).into_font().color(&colour)
}

/// From the least of `numbers` to the greatest; around a single one.
fn span(numbers: impl Iterator<Item = f64>) -> Range<f64> {
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    let (least, most) = numbers.fold(ends, |(least, most), n| (least.min(n), most.max(n)));
    let size = least.abs().max(most.abs());
    if least > most {
        0.0..1.0
    } else if most - least > 1e-9 * size {
        least..most
    } else if size == 0.0 {
        -0.5..0.5
    } else {
        least - size / 2.0..most + size / 2.0
    }
}

/// A number at an axis that spans `range`, without what rounding has left behind it.
fn tick(number: f64, range: &Range<f64>) -> String {
    let length = range.end - range.start;
    if number.abs() < 1e-9 * length {
        return "0".to_owned();
    }
    let rounded = format!("{number:.9e}").parse::<f64>().unwrap_or(number);
    // All numbers of an axis are written in one way.
    match range.start.abs().max(range.end.abs()) {
        1e-2..1e6 => format!("{rounded}"),
        _ => format!("{rounded:e}"),
    }
}

/// `text` within an element or attribute of XML or HTML.
pub(super) fn escaped(text: &str) -> String {
    let signs = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    signs.iter().fold(text.to_owned(), |text, (sign, entity)| text.replace(*sign, entity))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, shape: Shape, points: &[(f64, f64)]) -> Curve {
        Curve { name: name.to_owned(), figure: String::new(), shape, points: points.to_vec() }
    }

    fn chart(curves: Vec<Curve>) -> Chart {
        let (x, y) = ("time, ms".to_owned(), "memory in use, MiB".to_owned());
        Chart { title: "ResNet-18".to_owned(), x, y, from_zero: false, names: Vec::new(), curves }
    }

    /// The texts and the points of the lines of an SVG, which must be well-formed.
    fn read(svg: &str) -> (Vec<String>, Vec<Vec<(f64, f64)>>) {
        let document = roxmltree::Document::parse(svg).expect(svg);
        let named = |name: &'static str| {
            document.descendants().filter(move |node| node.tag_name().name() == name)
        };
        let texts = named("text").filter_map(|node| node.text());
        let points = |text: &str| {
            let pair = |pair: &str| {
                let (x, y) = pair.split_once(',').expect("a pair");
                (x.parse().expect("a number"), y.parse().expect("a number"))
            };
            text.split_whitespace().map(pair).collect()
        };
        let thick = |node: &roxmltree::Node| {
            node.attribute("stroke-width").is_some_and(|width| width != "1")
        };
        let lines = named("polyline").filter(thick);
        let lines = lines.map(|node| points(node.attribute("points").expect("points")));
        (texts.map(|text| text.trim().to_owned()).collect(), lines.collect())
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
        let memory = |name, live: &[Option<u64>]| {
            Curve::memory(name, "peak 400 MiB".to_owned(), &timeline(live))
        };
        let curves = vec![
            memory("none", &[mib(100), mib(400), mib(100)]),
            memory("a < b & c", &[mib(100), None, mib(200)]),
        ];
        let (texts, lines) = read(&chart(curves).to_svg());
        for words in
            ["time, ms", "memory in use, MiB", "ResNet-18", "none", "a < b & c", "peak 400 MiB"]
        {
            assert!(texts.iter().any(|text| text == words), "{words}: {texts:?}");
        }
        for tick in ["0", "10", "20", "100", "200", "300", "400"] {
            assert!(texts.iter().any(|text| text == tick), "{tick}: {texts:?}");
        }
        let [(left, bottom), (middle, same), (_, top), (right, _), _] = lines[0][..] else {
            panic!("five corners: {lines:?}")
        };
        assert_eq!(bottom, same, "a step first goes right");
        assert!((middle - left - (right - middle)).abs() <= 1.0, "{lines:?}");
        let [.., (end, third)] = lines[1][..] else { panic!("{lines:?}") };
        assert_eq!(end, right);
        assert!(((bottom - third) * 3.0 - (bottom - top)).abs() <= 3.0, "{lines:?}");
    }

    #[test]
    fn a_gap_parts_a_line_and_a_point_alone_is_a_dot() {
        let points = [(1.0, 0.5), (2.0, 0.6), (3.0, f64::NAN), (4.0, 0.7), (5.0, f64::NAN)];
        let svg = chart(vec![curve("auroc", Shape::Line, &points)]).to_inline_svg("a");
        let (_, lines) = read(&svg);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn areas_and_guides_take_no_colour_from_the_curves() {
        let square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)];
        let line = &square[..2];
        let curves = vec![
            curve("", Shape::Guide, line),
            curve("", Shape::Area, &square),
            curve("first", Shape::Line, line),
            curve("second", Shape::Line, line),
        ];
        let svg = chart(curves).to_inline_svg("a");
        assert_eq!(svg.matches("stroke=\"#0072B2\"").count(), 1, "{svg}");
        assert_eq!(svg.matches("stroke=\"#D55E00\"").count(), 1, "{svg}");
        let area = svg.lines().find(|line| line.contains("<polygon")).expect("an area");
        assert!(area.contains("fill=\"#0072B2\""), "{area}");
    }

    #[test]
    fn a_picture_in_a_page_is_called_by_its_title() {
        let mut chart = chart(Vec::new());
        chart.title = "<script>alert(\"1\")</script> & more".to_owned();
        let svg = chart.to_inline_svg("loss");
        let document = roxmltree::Document::parse(&svg).expect(&svg);
        let title = document.root_element().first_element_child().expect("a title");
        assert_eq!(title.text(), Some(chart.title.as_str()));
        assert_eq!(title.attribute("id"), document.root_element().attribute("aria-labelledby"));
    }

    #[test]
    fn axes_have_round_numbers_whatever_they_span() {
        let texts = |points: &[(f64, f64)], from_zero| {
            let curves = vec![curve("", Shape::Line, points)];
            let (texts, _) = read(&Chart { from_zero, ..chart(curves) }.to_inline_svg("a"));
            texts.into_iter().filter(|text| text.parse::<f64>().is_ok()).collect::<Vec<_>>()
        };
        for (points, ticks) in [
            (vec![(1.0, 0.1), (16.0, 0.4)], vec!["5", "10", "15", "0.1", "0.2", "0.3", "0.4"]),
            (vec![(0.5, 0.0), (2.0, 2e-3)], vec!["0.5", "1.5", "5e-4", "1e-3", "1.5e-3", "2e-3"]),
            (vec![(1.0, 3e-4), (4.0, 1e-5)], vec!["1", "2", "3", "4", "1e-4", "2e-4", "3e-4"]),
            (vec![(1.0, 3.0)], vec!["1", "2", "3", "4"]),
            (vec![(0.0, 0.0)], vec!["0"]),
            (vec![], vec!["0", "1"]),
            (vec![(0.0, -3.0), (1.0, 7.3e10)], vec!["2e10", "6e10"]),
            (vec![(1.0, 5.0), (2.0, 5.0 + 1e-15)], vec!["4", "6"]),
        ] {
            let found = texts(&points, false);
            for tick in ticks {
                assert!(found.iter().any(|text| text == tick), "{tick} of {points:?}: {found:?}");
            }
            assert!(found.iter().all(|text| text.len() < 7), "{found:?}");
        }
        assert!(texts(&[(0.0, 900.0), (1.0, 1000.0)], true).contains(&"200".to_owned()));
        // Epochs have no halves.
        for (epochs, ticks) in [(2, vec!["1", "2"]), (4, vec!["1", "2", "3", "4"])] {
            let found = texts(&[(1.0, 10.0), (f64::from(epochs), 20.0)], false);
            let small: Vec<_> =
                found.iter().filter(|text| text.len() < 2 || text.contains('.')).collect();
            assert_eq!(small, ticks, "{found:?}");
        }
    }

    /// The name of the left axis is centred at `x`, upright; numbers end at their `x`.
    #[test]
    fn the_name_of_the_left_axis_is_beside_its_numbers() {
        for points in
            [[(1.0, 0.0), (9.0, 2e-3)], [(1.0, 0.0), (9.0, 0.5)], [(1.0, 2e5), (9.0, 4e5)]]
        {
            let svg = chart(vec![curve("", Shape::Line, &points)]).to_inline_svg("a");
            let document = roxmltree::Document::parse(&svg).expect(&svg);
            let texts = || document.descendants().filter(|node| node.has_tag_name("text"));
            let at = |node: &roxmltree::Node| -> f64 {
                node.attribute("x").and_then(|x| x.parse().ok()).expect("a place")
            };
            let is = |node: &roxmltree::Node, words: &str| {
                node.text().is_some_and(|text| text.trim() == words)
            };
            let size = f64::from(INLINE.letters);
            let name = texts().find(|node| is(node, "memory in use, MiB")).expect("the name");
            let numbers =
                texts().filter(|node| node.attribute("text-anchor") == Some("end")).map(|node| {
                    let letters = node.text().unwrap_or_default().trim().len() as f64;
                    at(&node) - letters * 0.56 * size
                });
            let first = numbers.fold(f64::INFINITY, f64::min);
            assert!(first.is_finite() && at(&name) + size * 0.9 <= first, "{first}\n{svg}");
        }
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
        let long = curve(&"a".repeat(50), Shape::Dots, &[]);
        let svg = chart(vec![long, curve("second", Shape::Line, &[])]).to_svg();
        let document = roxmltree::Document::parse(&svg).expect(&svg);
        let second =
            document.descendants().find(|node| node.text().is_some_and(|t| t.trim() == "second"));
        let height = second.and_then(|node| node.attribute("y")).expect("stands there");
        // Behind the three lines of the first.
        assert_eq!(height, (44 + 10 + 3 * 18).to_string());
    }
}
