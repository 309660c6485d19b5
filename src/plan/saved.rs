//! A plan as a configuration, with every default written out.

use super::Plan;
use crate::config::{Config, DeviceConfig, DeviceUse};
use crate::model::ModelTable;
use crate::parallel::{DataParallelConfig, ParallelConfig};

const OPENING: &str = "\
# The resolved configuration: every default filled in.
# Running this file is the same experiment.

";

impl Plan {
    /// The configuration that resolves to this plan and leaves nothing to default.
    pub fn to_config(&self) -> Config {
        Config {
            run: self.run.clone(),
            device: DeviceConfig { device: self.device_use() },
            parallel: ParallelConfig {
                data: DataParallelConfig { batch_norm: self.batch_norm, optimizer: self.placement },
                pipeline: self.pipeline.clone(),
            },
            data: self.data.clone(),
            model: ModelTable {
                init: self.init.clone(),
                freeze: self.freeze.clone(),
                ..self.model.config().clone().into()
            },
            heads: self.heads.clone(),
            train: self.train.clone(),
            memory: self.memory.clone(),
            evaluate: self.evaluate.clone(),
        }
    }

    fn device_use(&self) -> DeviceUse {
        match self.devices.as_slice() {
            [device] => DeviceUse::One(device.to_string()),
            devices => DeviceUse::Several(devices.iter().map(ToString::to_string).collect()),
        }
    }

    /// [`Plan::to_config`] as TOML: what is saved in the run's folder.
    ///
    /// # Errors
    ///
    /// When a value cannot be written as TOML: a path that is not UTF-8, or a seed above 2⁶³ − 1.
    /// Neither can be read from a file.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        Ok(format!("{OPENING}{}", toml::to_string(&self.to_config())?))
    }
}
