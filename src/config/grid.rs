//! `--grid KEY=V1,V2,…`: the combinations of a sweep, each a configuration of its own.
//!
//! The right side is the elements of a TOML array; as with `--set`, what is no TOML or is wanted as
//! a string is taken as it stands, since a shell takes the quotes of `KEY="a","b"` away. Several
//! grids make the product of their values in the order given, the first varying slowest.

use std::ops::Range;
use std::path::Path;

use toml::de::DeValue;

use super::error::ConfigError;
use super::keys::{KeyPath, Step};
use super::load::{Loaded, content, finish, overridden};
use super::overrides::{Assignment, Flag, Override, parse};
use super::positions::Source;
use super::shape::Shape;
use super::tree::{Node, Place, Problem, Reader, Value};

/// More combinations than these are taken for a slip.
const MOST: usize = 10_000;

/// What a sweep measures.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The swept keys, in the order given.
    pub keys: Vec<String>,
    /// The configuration as written, overrides included, without the swept keys.
    pub rest: toml::Value,
    /// Every combination of the values; the first key varies slowest.
    pub combinations: Vec<Combination>,
}

/// One combination of a sweep's values.
#[derive(Debug, Clone)]
pub struct Combination {
    /// The value of each swept key.
    pub set: Vec<(String, toml::Value)>,
    /// The same as `--set` takes them.
    pub overrides: Vec<String>,
    /// The configuration with these values.
    pub loaded: Loaded,
}

impl Combination {
    /// The combination as a person writes it: `a.b=1, a.c="x"`.
    pub fn name(&self) -> String {
        self.overrides.join(", ")
    }

    /// `error` with the combination in which it was found.
    pub fn error(&self, error: ConfigError) -> ConfigError {
        error.noted(format!("in the combination {}", self.name()))
    }
}

/// Reads the configuration in the file `path`, changed by `overrides`, in every combination of
/// `grids` (`train.batch_size=16,32`).
///
/// # Errors
///
/// As [`super::load`] for any combination; when a grid is no list of values, a value stands twice
/// or a key is in two grids.
pub fn load_grid(path: &Path, overrides: &[String], grids: &[String]) -> Result<Grid, ConfigError> {
    read_grid(path.display().to_string(), content(path)?, overrides, grids)
}

/// As [`load_grid`], from `text`, the content of a file called `file`.
///
/// # Errors
///
/// As there, but for reading the file.
pub fn read_grid(
    file: String,
    text: String,
    overrides: &[String],
    grids: &[String],
) -> Result<Grid, ConfigError> {
    let mut source = overridden(file, text, overrides)?;
    let axes = axes(&mut source, grids)?;
    let mut rest = source.tree.clone();
    axes.iter().for_each(|axis| remove(&mut rest, &axis.steps));
    let counts: Vec<usize> = axes.iter().map(|axis| axis.values.len()).collect();
    let combinations = product(&counts).map(|choice| combine(&source, &axes, &choice));
    Ok(Grid {
        keys: axes.iter().map(Axis::key).collect(),
        combinations: combinations.collect::<Result<_, _>>()?,
        rest: rest.to_toml(),
    })
}

/// A grid, cut into its parts; spans count in the text shown.
struct Axis<'a> {
    number: usize,
    steps: Vec<(Step, Range<usize>)>,
    values: Vec<Element<'a>>,
}

/// A value and where it stands.
struct Element<'a> {
    text: &'a str,
    start: usize,
}

impl Axis<'_> {
    fn path(&self) -> KeyPath {
        KeyPath(self.steps.iter().map(|(step, _)| step.clone()).collect())
    }

    fn key(&self) -> String {
        self.path().to_string()
    }

    fn problem(&self, span: Range<usize>, message: String, help: &str) -> Problem {
        let place = Place { flag: Some(self.number), span };
        Problem { place, message, help: Some(help.to_owned()) }
    }
}

fn axes<'a>(source: &mut Source, grids: &'a [String]) -> Result<Vec<Axis<'a>>, ConfigError> {
    let mut axes: Vec<Axis> = Vec::new();
    for text in grids {
        let number = source.add_flag(Flag::Grid.shown(text));
        let axis = axis(number, text)
            .and_then(|axis| check_apart(&axis, &axes).map(|()| axis))
            .map_err(|problem| source.problem(problem))?;
        axes.push(axis);
        let count = axes.iter().map(|axis| axis.values.len()).try_fold(1, usize::checked_mul);
        if count.is_none_or(|count| count > MOST) {
            let end = Flag::Grid.shown(text).len();
            let place = Place { flag: Some(number), span: 0..end };
            let message = format!("the grids make more than {MOST} combinations");
            let help = Some("give fewer values, or sweep one key after another".to_owned());
            return Err(source.problem(Problem { place, message, help }));
        }
    }
    Ok(axes)
}

fn axis(number: usize, text: &str) -> Result<Axis<'_>, Problem> {
    let start = Flag::Grid.text_start();
    let Assignment { steps, value } = parse(number, Flag::Grid, text)?;
    let mut axis = Axis { number, steps, values: Vec::new() };
    let mut known: Vec<toml::Value> = Vec::new();
    let ranges = elements(&text[value.start - start..]);
    let last = ranges.len() - 1;
    for (place, range) in ranges.into_iter().enumerate() {
        let (from, to) = (value.start + range.start, value.start + range.end);
        let untrimmed = &text[from - start..to - start];
        let text = untrimmed.trim();
        if text.is_empty() {
            // As in TOML, a comma may follow the last value.
            if place == last {
                break;
            }
            let help = "between two commas stands a value; for an empty string write two quotes";
            return Err(axis.problem(from..to + 1, "a value is missing here".to_owned(), help));
        }
        let start = from + (untrimmed.len() - untrimmed.trim_start().len());
        let element = Element { text, start };
        let read = literal(&element, number);
        if known.contains(&read) {
            let message = format!("`{text}` stands twice in this grid");
            let help = "every combination is measured once: leave one of the two out";
            return Err(axis.problem(start..start + text.len(), message, help));
        }
        known.push(read);
        axis.values.push(element);
    }
    Ok(axis)
}

/// The value, whatever its key wants.
fn literal(element: &Element<'_>, number: usize) -> toml::Value {
    let as_it_stands = || toml::Value::String(element.text.to_owned());
    let reader = Reader { flag: Some(number), offset: element.start };
    let Ok(value) = DeValue::parse(element.text) else { return as_it_stands() };
    reader.node(&value).map_or_else(|_| as_it_stands(), |node| node.to_toml())
}

/// The ranges between commas that stand outside of quotes and brackets.
fn elements(text: &str) -> Vec<Range<usize>> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    let (mut quote, mut escaped, mut open) = (None, false, 0_usize);
    for (at, sign) in text.char_indices() {
        match (quote, sign) {
            (Some('"'), _) if escaped => escaped = false,
            (Some('"'), '\\') => escaped = true,
            (Some(close), _) if close == sign => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(sign),
            (None, '[' | '{') => open += 1,
            (None, ']' | '}') => open = open.saturating_sub(1),
            (None, ',') if open == 0 => {
                ranges.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    ranges.push(start..text.len());
    ranges
}

/// Refuses a key that is in `others` already, or lies in one of theirs.
fn check_apart(axis: &Axis<'_>, others: &[Axis<'_>]) -> Result<(), Problem> {
    let path = axis.path();
    for other in others.iter().map(Axis::path) {
        let shared = path.0.iter().zip(&other.0).take_while(|(a, b)| a == b).count();
        if shared == path.0.len().min(other.0.len()) {
            let span = axis.steps[0].1.start..axis.steps[axis.steps.len() - 1].1.end;
            let message = match path == other {
                true => format!("`{path}` is in two grids"),
                false => format!("`{path}` and `{other}`, of another grid, change each other"),
            };
            return Err(axis.problem(span, message, "write all values in one `--grid`"));
        }
    }
    Ok(())
}

/// Every way to choose one of each count, the last varying fastest.
fn product(counts: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..counts.iter().product()).map(move |mut number| {
        let mut choice = vec![0; counts.len()];
        for (place, count) in choice.iter_mut().zip(counts).rev() {
            *place = number % count;
            number /= count;
        }
        choice
    })
}

fn combine(
    source: &Source,
    axes: &[Axis<'_>],
    choice: &[usize],
) -> Result<Combination, ConfigError> {
    let mut source = source.clone();
    let shape = Shape::of_config();
    let chosen = || axes.iter().zip(choice).map(|(axis, at)| (axis, &axis.values[*at]));
    let overrides: Vec<String> =
        chosen().map(|(axis, value)| format!("{}={}", axis.key(), value.text)).collect();
    let note =
        |error: ConfigError| error.noted(format!("in the combination {}", overrides.join(", ")));
    for (axis, Element { text, start }) in chosen() {
        let change = Override {
            number: axis.number,
            flag: Flag::Grid,
            steps: axis.steps.clone(),
            value: text,
            value_start: *start,
        };
        source.change(|tree| change.set(tree, &shape, 0)).map_err(note)?;
    }
    let set = chosen().map(|(axis, value)| {
        let read = source.value(&axis.path()).map(Node::to_toml);
        (axis.key(), read.unwrap_or_else(|| literal(value, axis.number)))
    });
    let set = set.collect();
    Ok(Combination { set, loaded: finish(source).map_err(note)?, overrides })
}

/// Removes the value at the end of `steps`, where there is one.
fn remove(node: &mut Node, steps: &[(Step, Range<usize>)]) {
    let [(first, _), rest @ ..] = steps else { return };
    match (&mut node.value, first) {
        (Value::Table(entries), Step::Key(name)) if rest.is_empty() => {
            entries.retain(|entry| entry.name != *name);
        }
        (Value::Table(entries), Step::Key(name)) => {
            let below = entries.iter_mut().find(|entry| entry.name == *name);
            below.into_iter().for_each(|entry| remove(&mut entry.node, rest));
        }
        (Value::Array(items), step) => {
            let index = match step {
                Step::Index(index) => Some(*index),
                Step::Key(name) => name.parse().ok(),
            };
            let below = index.and_then(|index| items.get_mut(index));
            below.into_iter().for_each(|item| remove(item, rest));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        elements(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn commas_inside_of_quotes_and_brackets_part_nothing() {
        assert_eq!(
            cut(r#"none, "a,\",b",'c,"',{sequential={segments=4,x=[1,2]}},[3,4]"#),
            ["none", r#" "a,\",b""#, r#"'c,"'"#, "{sequential={segments=4,x=[1,2]}}", "[3,4]"]
        );
        assert_eq!(cut("1,,2,"), ["1", "", "2", ""]);
    }

    #[test]
    fn the_first_key_varies_slowest() {
        let all: Vec<Vec<usize>> = product(&[2, 1, 3]).collect();
        assert_eq!(
            all,
            [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]].map(Vec::from)
        );
    }
}
