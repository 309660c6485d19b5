//! `[model] freeze` and `[train.lr_factors]`: stages by name, and which of them are frozen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_part_of;
use super::layers::StageLayers;
use crate::fault::{Fault, fault};

/// Which stages keep their weights: a list for the whole training, or a table for its first epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FreezeConfig {
    /// For the whole training.
    Always(Vec<String>),
    /// For the first epochs.
    AtFirst(FreezeAtFirst),
}

/// `[model.freeze]`: stages that are frozen for the first epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FreezeAtFirst {
    /// The stages.
    #[schemars(example = ["stem", "denseblock1"])]
    pub stages: Vec<String>,
    /// How many epochs they are frozen for, from the first on; at least 1.
    #[schemars(example = 2)]
    pub epochs: usize,
}

impl FreezeConfig {
    /// The names, and the key of their list.
    fn names(&self) -> (&[String], &'static str) {
        match self {
            Self::Always(stages) => (stages, "model.freeze"),
            Self::AtFirst(FreezeAtFirst { stages, .. }) => (stages, "model.freeze.stages"),
        }
    }

    /// The epochs that they are frozen for; `None` for all of them.
    pub fn epochs(&self) -> Option<usize> {
        match self {
            Self::Always(_) => None,
            Self::AtFirst(FreezeAtFirst { epochs, .. }) => Some(*epochs),
        }
    }

    /// How many stages are frozen of those of a network, `stages`, the heads not among them: all from
    /// the first on.
    ///
    /// # Errors
    ///
    /// A name of no stage, a trained stage before a frozen one, or no epochs.
    pub fn stages(&self, stages: &[StageLayers]) -> Result<usize, Fault> {
        let (names, key) = self.names();
        if self.epochs() == Some(0) {
            return Err(fault("model.freeze.epochs", "`epochs` is 0", "write 1 or more"));
        }
        if names.is_empty() {
            let help = "write a list of stages, such as [\"stem\"], or remove it";
            return Err(fault(key, "no stage is named", help));
        }
        let mut frozen = vec![false; stages.len()];
        for (place, name) in names.iter().enumerate() {
            let found = stages_called(name, stages);
            let found = found.map_err(|fault| fault.below(&format!("{key}[{place}]")))?;
            found.into_iter().for_each(|stage| frozen[stage] = true);
        }
        let count = frozen.iter().rposition(|frozen| *frozen).map_or(0, |last| last + 1);
        let trained =
            |(stage, frozen): &(&StageLayers, bool)| !frozen && !names_of(stage).is_empty();
        let Some((before, _)) = stages.iter().zip(frozen).take(count).find(trained) else {
            return Ok(count);
        };
        let last = &stages[count - 1].name;
        let message = format!(
            "`{last}` is frozen and `{}` before it is trained: its gradient would have to pass through \
             all that is frozen",
            before.name
        );
        let help = format!("freeze `{}` too, or train `{last}`", before.name);
        Err(fault(key, message, help))
    }
}

/// The stages that `name` means: that of this name, or all whose weights' names begin so.
///
/// # Errors
///
/// A name that means none, or a part of one; the fault has no key yet.
pub fn stages_called(name: &str, stages: &[StageLayers]) -> Result<Vec<usize>, Fault> {
    let prefix = format!("{name}.");
    let mut found = Vec::new();
    for (place, stage) in stages.iter().enumerate() {
        let weights = names_of(stage);
        let of_prefix = weights.iter().filter(|weight| weight.starts_with(&prefix)).count();
        if is_part_of(&stage.name, name) || (of_prefix > 0 && of_prefix == weights.len()) {
            found.push(place);
        } else if of_prefix > 0 {
            let message = format!("{name:?} is a part of the stage `{}`", stage.name);
            return Err(fault("", message, format!("name the whole stage, {:?}", stage.name)));
        }
    }
    if found.is_empty() {
        let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
        let score = |known: &&str| strsim::jaro_winkler(known, name);
        let near = names.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
        let near = near.filter(|near| score(near) > 0.8);
        let near = near.map(|near| format!("did you mean {near:?}? ")).unwrap_or_default();
        let help = format!("{near}the stages are {}", names.join(", "));
        return Err(fault("", format!("there is no stage called {name:?}"), help));
    }
    Ok(found)
}

/// The names of a stage's weights and running statistics.
fn names_of(stage: &StageLayers) -> Vec<String> {
    stage.parameters().into_iter().map(|parameter| parameter.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;

    fn frozen(model: &str, names: &[&str]) -> Result<usize, Fault> {
        let config: ModelConfig = toml::from_str(model).expect("a model");
        let network = config.resolve([1, 64, 64]).expect("a network");
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        FreezeConfig::Always(names).stages(network.layers())
    }

    const DENSENET: &str = "[densenet]\ndepth = 121";
    const RESNET: &str = "[resnet]\ndepth = 18";

    #[test]
    fn stages_are_known_by_their_names_and_by_torchvisions_prefixes() {
        for (model, names, stages) in [
            (DENSENET, &["stem"][..], 1),
            (DENSENET, &["denseblock1", "stem"][..], 2),
            (DENSENET, &["stem", "features.denseblock1", "features.transition1"][..], 3),
            (RESNET, &["stem", "layer1"][..], 3),
            (RESNET, &["stem", "layer1.0"][..], 2),
            (RESNET, &["stem", "layer1", "layer2", "layer3", "layer4"][..], 9),
        ] {
            assert_eq!(frozen(model, names), Ok(stages), "{names:?}");
        }
        // All below the heads.
        assert_eq!(frozen(DENSENET, &["features"]), Ok(9));
    }

    #[test]
    fn what_is_no_whole_stage_is_refused_with_those_that_are() {
        let refused = |model, names: &[&str]| frozen(model, names).expect_err("is refused");
        let fault = refused(DENSENET, &["stem", "densblock1"]);
        assert_eq!(fault.key, "model.freeze[1]");
        let help = fault.help.expect("help");
        assert!(help.starts_with("did you mean \"denseblock1\"? the stages are stem,"), "{help}");
        for (model, part) in [
            (DENSENET, "features.denseblock1.denselayer1"),
            (RESNET, "conv1"),
            (RESNET, "layer1.0.bn1"),
        ] {
            let fault = refused(model, &[part]);
            assert!(fault.message.contains("is a part of the stage"), "{}", fault.message);
        }
        assert_eq!(refused(RESNET, &[]).key, "model.freeze");
        let fault = refused(DENSENET, &["stem", "transition1"]);
        assert!(fault.message.contains("`denseblock1` before it is trained"), "{}", fault.message);
        assert!(refused(RESNET, &["heads"]).message.contains("no stage"));
    }
}
