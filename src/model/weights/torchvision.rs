//! The names of torchvision's models.

use thiserror::Error;

use crate::model::{HeadConfig, ModelConfig, ResnetForm};

/// torchvision has no model of this kind.
#[derive(Debug, Error)]
#[error("torchvision has no {0}: export it with `--format safetensors`")]
pub struct NoTorchvision(&'static str);

/// How the names of a model's tensors become those of torchvision's model. They differ in the heads.
#[derive(Debug)]
pub struct Renamed {
    /// What torchvision calls its classifier.
    classifier: &'static str,
    /// The only head, where that is one linear layer.
    only: Option<String>,
}

/// Those of a model of this configuration. Its only head becomes torchvision's classifier where it is one
/// linear layer (`classifier.weight`, for a ResNet `fc.weight`); other heads keep their own names behind
/// that (`fc.findings.weight`).
///
/// # Errors
/// When torchvision has no such model.
pub fn to_torchvision(model: &ModelConfig, heads: &[HeadConfig]) -> Result<Renamed, NoTorchvision> {
    let classifier = match model {
        ModelConfig::Densenet(_) => "classifier",
        ModelConfig::Resnet(resnet) if resnet.form == ResnetForm::Cifar => {
            return Err(NoTorchvision("ResNet with `form = \"cifar\"`"));
        }
        ModelConfig::Resnet(_) => "fc",
        ModelConfig::Sequential(_) => return Err(NoTorchvision("network of `[model.sequential]`")),
    };
    let only = match heads {
        [head] if head.hidden.is_empty() => Some(head.name.clone()),
        _ => None,
    };
    Ok(Renamed { classifier, only })
}

impl Renamed {
    /// torchvision's name for this tensor.
    pub fn name(&self, ours: &str) -> String {
        let Some(rest) = ours.strip_prefix("classifier.") else { return ours.to_owned() };
        let part = self.only.as_ref().and_then(|head| rest.strip_prefix(head)?.strip_prefix('.'));
        format!("{}.{}", self.classifier, part.unwrap_or(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(model: &str, heads: &[(&str, &[usize])], ours: &str) -> String {
        let model: ModelConfig = toml::from_str(model).expect("a model");
        let head = |(name, hidden): &(&str, &[usize])| -> HeadConfig {
            let text =
                format!("name = '{name}'\ntask = 'binary'\nlabels = ['a']\nhidden = {hidden:?}");
            toml::from_str(&text).expect("a head")
        };
        let heads: Vec<HeadConfig> = heads.iter().map(head).collect();
        to_torchvision(&model, &heads).map_or_else(|no| no.to_string(), |names| names.name(ours))
    }

    #[test]
    fn only_heads_are_called_otherwise() {
        let (densenet, resnet) = ("[densenet]\ndepth = 121", "[resnet]\ndepth = 18");
        let one: &[(&str, &[usize])] = &[("sex", &[])];
        let two: &[(&str, &[usize])] = &[("sex", &[]), ("view", &[])];
        let deep: &[(&str, &[usize])] = &[("sex", &[8])];
        for (model, heads, ours, theirs) in [
            (densenet, one, "features.norm0.weight", "features.norm0.weight"),
            (densenet, one, "classifier.sex.weight", "classifier.weight"),
            (resnet, one, "layer1.0.bn1.bias", "layer1.0.bn1.bias"),
            (resnet, one, "classifier.sex.bias", "fc.bias"),
            (resnet, two, "classifier.view.bias", "fc.view.bias"),
            (densenet, deep, "classifier.sex.hidden1.bias", "classifier.sex.hidden1.bias"),
        ] {
            assert_eq!(renamed(model, heads, ours), theirs);
        }
        let cifar = "[resnet]\ndepth = 20\nform = 'cifar'";
        let no = "torchvision has no ResNet with `form = \"cifar\"`: export it with `--format \
                  safetensors`";
        assert_eq!(renamed(cifar, one, ""), no);
    }
}
