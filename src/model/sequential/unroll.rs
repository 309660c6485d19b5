//! A list of layers with its repetitions written out.

use super::{LayerConfig, RepeatConfig, StageConfig};
use crate::choice::Choice;
use crate::fault::{Fault, fault};

/// More layers than any network that was trained.
const MOST: usize = 20_000;

/// A layer, neither repeated nor grouped any more.
pub(super) struct Unrolled<'a> {
    /// Where it is written, within `[model.sequential]`.
    pub key: String,
    pub layer: &'a LayerConfig,
    /// The stage that the user put it in.
    pub stage: Option<String>,
}

/// Where layers stand: in the chain itself, or in a branch, which is always one stage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    Chain,
    Branch,
}

/// The layers in the order in which they run; those of a branch are still inside it.
///
/// # Errors
///
/// A stage inside a stage or a branch, or too many layers.
pub(super) fn unroll<'a>(
    layers: &'a [Choice<LayerConfig>],
    key: &str,
    inside: Inside,
) -> Result<Vec<Unrolled<'a>>, Fault> {
    let mut unrolled = Unrolling { inside, stage: None, repetition: String::new(), all: vec![] };
    unrolled.add(layers, key)?;
    Ok(unrolled.all)
}

struct Unrolling<'a> {
    inside: Inside,
    stage: Option<String>,
    /// Which repetition, such as `.2.0`.
    repetition: String,
    all: Vec<Unrolled<'a>>,
}

impl<'a> Unrolling<'a> {
    fn add(&mut self, layers: &'a [Choice<LayerConfig>], key: &str) -> Result<(), Fault> {
        for (place, layer) in layers.iter().enumerate() {
            let key = format!("{key}[{place}]");
            match &layer.0 {
                LayerConfig::Repeat(repeat) => self.repeat(repeat, &format!("{key}.repeat"))?,
                LayerConfig::Stage(stage) => self.stage(stage, &format!("{key}.stage"))?,
                layer => {
                    let stage = self.stage.clone();
                    let key = format!("{key}.{}", layer.name());
                    self.all.push(Unrolled { key, layer, stage });
                }
            }
        }
        Ok(())
    }

    fn repeat(&mut self, repeat: &'a RepeatConfig, key: &str) -> Result<(), Fault> {
        let outer = self.repetition.clone();
        for repetition in 0..repeat.times {
            self.repetition = format!("{outer}.{repetition}");
            let before = self.all.len();
            self.add(&repeat.layers, &format!("{key}.layers"))?;
            if self.all.len() > MOST || self.all.len() == before {
                break;
            }
        }
        self.repetition = outer;
        if repeat.times == 0 || repeat.layers.is_empty() {
            let empty = if repeat.times == 0 { "times" } else { "layers" };
            let help = "write 1 or more, or remove it";
            return Err(fault(format!("{key}.{empty}"), "this repeats nothing", help));
        }
        if self.all.len() > MOST {
            let message = format!("these are more than {MOST} layers");
            return Err(fault(format!("{key}.times"), message, "repeat them less often"));
        }
        Ok(())
    }

    fn stage(&mut self, stage: &'a StageConfig, key: &str) -> Result<(), Fault> {
        let within = match (self.inside, &self.stage) {
            (Inside::Branch, _) => Some("a branch"),
            (Inside::Chain, Some(_)) => Some("another stage"),
            (Inside::Chain, None) => None,
        };
        if let Some(within) = within {
            let message = format!("a stage cannot stand inside {within}");
            let help = "write its layers without `stage`: what is inside belongs to one stage \
                        anyway";
            return Err(fault(key, message, help));
        }
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let number =
            stage.name.strip_prefix("layer").is_some_and(|rest| rest.parse::<usize>().is_ok());
        let taken = stage.name == "heads" || number;
        if stage.name.is_empty() || !stage.name.chars().all(letter) || taken {
            let message = format!("{:?} cannot be a stage's name", stage.name);
            let help = "use letters, digits, `.`, `_` and `-`; `heads` and `layer0`, `layer1`, … \
                        are other stages";
            return Err(fault(format!("{key}.name"), message, help));
        }
        let name = format!("{}{}", stage.name, self.repetition);
        if self.all.iter().any(|layer| layer.stage.as_ref() == Some(&name)) {
            let message = format!("two stages are called {name:?}");
            return Err(fault(format!("{key}.name"), message, "give each stage its own name"));
        }
        self.stage = Some(name);
        self.add(&stage.layers, &format!("{key}.layers"))?;
        self.stage = None;
        Ok(())
    }
}
