//! `[model]`: the network, and beside it the weights that it starts from.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::{Serialize, de};

use super::{FreezeConfig, ModelConfig};
use crate::choice::Choice;

/// The keys beside the network.
const INIT: &str = "init";
const ABOUT_INIT: &str = "The file of weights to start from: SafeTensors, or a PyTorch state dict with \
     torchvision's names. Heads that it does not have, or has with another number of outputs, keep \
     their random weights. A first convolution of another number of channels is adapted. Relative \
     paths count from the folder in which the program is started.";

const FREEZE: &str = "freeze";
const ABOUT_FREEZE: &str = "Stages whose weights stay as they are, by the names that `trainer plan` prints \
     or by torchvision's (`layer1`, `features.denseblock1`): those from the first on, without a gap. \
     Their norms use and keep their running statistics, nothing of them is dropped out, and nothing is \
     kept for a backward pass. A list holds for the whole training; `{ stages = [\"stem\"], epochs = 2 }` \
     for the first epochs, after which all stages are trained.";

/// `[model]`: one network, the weights to start from and what stays of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelTable {
    /// The file with the weights to start from; drawn at random when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<PathBuf>,
    /// The stages whose weights stay as they are; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeConfig>,
    /// The network below the heads.
    #[serde(flatten)]
    pub network: Choice<ModelConfig>,
}

impl From<ModelConfig> for ModelTable {
    fn from(network: ModelConfig) -> Self {
        Self { init: None, freeze: None, network: Choice(network) }
    }
}

// By hand, because serde's flattening loses where in a file an error stands.
impl<'de> Deserialize<'de> for ModelTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TableVisitor)
    }
}

struct TableVisitor;

impl<'de> Visitor<'de> for TableVisitor {
    type Value = ModelTable;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the name of a network, or a table with that name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ModelTable, E> {
        let network = Choice::deserialize(de::value::StrDeserializer::new(name))?;
        Ok(ModelTable { init: None, freeze: None, network })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelTable, A::Error> {
        let mut beside = Beside { map, init: None, freeze: None };
        let network = ModelConfig::deserialize(MapAccessDeserializer::new(&mut beside))?;
        // What follows the network; what stands beside it is noted on the way.
        if let Some(key) = beside.next_key::<String>()? {
            return Err(A::Error::custom(format!("`{key}` beside another network")));
        }
        let Beside { init, freeze, .. } = beside;
        Ok(ModelTable { init, freeze, network: Choice(network) })
    }
}

/// The entries of a table without `init` and `freeze`, which are noted instead.
struct Beside<A> {
    map: A,
    init: Option<PathBuf>,
    freeze: Option<FreezeConfig>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Beside<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            match key.as_str() {
                INIT => self.init = Some(self.map.next_value()?),
                FREEZE => self.freeze = Some(self.map.next_value()?),
                _ => return seed.deserialize(de::value::StringDeserializer::new(key)).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

impl JsonSchema for ModelTable {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ModelTable".into()
    }

    /// The choice of a network with `init` and `freeze` beside each.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut freeze = FreezeConfig::json_schema(generator);
        freeze.insert("description".to_owned(), ABOUT_FREEZE.into());
        freeze.insert("examples".to_owned(), serde_json::json!([["stem", "denseblock1"]]));
        let mut schema = Choice::<ModelConfig>::json_schema(generator);
        let tables = schema.pointer_mut("/anyOf/1/oneOf").and_then(|tables| tables.as_array_mut());
        for table in tables.into_iter().flatten() {
            let keys = table.get_mut("properties").and_then(|keys| keys.as_object_mut());
            let init = serde_json::json!({
                "description": ABOUT_INIT,
                "type": "string",
                "examples": ["weights/densenet121.safetensors"],
            });
            if let Some(keys) = keys {
                keys.insert(INIT.to_owned(), init);
                keys.insert(FREEZE.to_owned(), freeze.clone().into());
            }
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Config {
        model: ModelTable,
    }

    fn read(text: &str) -> ModelTable {
        toml::from_str::<Config>(text).expect("reads").model
    }

    #[test]
    fn the_weights_to_start_from_stand_beside_the_network_in_any_order() {
        let depth = "densenet = { depth = 121 }";
        let without = read(&format!("[model]\n{depth}"));
        assert_eq!(without.init, None);
        let init = "init = 'w.pth'";
        for text in [
            format!("[model]\n{init}\n{depth}"),
            format!("[model]\n{depth}\n{init}"),
            format!("[model]\n{init}\n[model.densenet]\ndepth = 121"),
            format!("model = {{ {init}, {depth} }}"),
        ] {
            let with = read(&text);
            assert_eq!(with.init.as_deref(), Some("w.pth".as_ref()), "{text}");
            assert_eq!(with.network, without.network, "{text}");
        }
        assert_eq!(read("model = 'resnet'"), read("[model.resnet]"));
    }

    #[test]
    fn a_table_reads_back_as_written() {
        for text in [
            "[model.resnet]\ndepth = 18",
            "[model]\ninit = 'w.pth'\n[model.densenet]",
            "[model]\nfreeze = ['stem']\ninit = 'w.pth'\n[model.densenet]",
            "[model.densenet]\n[model.freeze]\nstages = ['stem']\nepochs = 2",
        ] {
            let config = Config { model: read(text) };
            let written = toml::to_string(&config).expect("writes");
            assert_eq!(read(&written), config.model, "{written}");
        }
    }

    #[test]
    fn one_network_is_read_and_nothing_else() {
        let refused =
            |text: &str| toml::from_str::<Config>(text).expect_err("is refused").to_string();
        assert!(refused("[model]\ninit = 'w.pth'").contains("model"));
        assert!(refused("[model.resnet]\n[model.densenet]").contains("beside another network"));
        assert!(refused("[model]\ninit = 3\n[model.resnet]").contains("init"));
        assert!(refused("[model]\nfreeze = 3\n[model.resnet]").contains("FreezeConfig"));
        assert!(refused("[model.resnett]").contains("resnett"));
    }
}
