//! Policies: which stages keep what their backward pass needs.

mod budget;

pub use budget::TradeOff;

use super::{CheckpointPlan, CheckpointingConfig};
use crate::choice::name_of;
use crate::fault::{Fault, fault};

impl CheckpointingConfig {
    /// As a configuration writes it.
    pub fn name(&self) -> &'static str {
        name_of(self)
    }

    /// How the stages with these names are taken forward and back; `None` for `budget`, which needs
    /// to know their bytes.
    ///
    /// # Errors
    ///
    /// A setting that does not fit the chain.
    pub fn checkpoint_plan(&self, names: &[&str]) -> Result<Option<CheckpointPlan>, Fault> {
        let stages = names.len();
        Ok(Some(match self {
            Self::None(_) => CheckpointPlan::keep_all(stages),
            Self::Sequential(config) if config.segments == 0 => {
                return Err(fault("sequential.segments", "`segments` is 0", "write 1 or more"));
            }
            Self::Sequential(config) => CheckpointPlan::segments(&equal(stages, config.segments)),
            Self::Sqrt(_) => {
                CheckpointPlan::segments(&equal(stages, (stages as f64).sqrt().round() as usize))
            }
            Self::Every(_) => CheckpointPlan::segments(&equal(stages, stages)),
            Self::Manual(config) => CheckpointPlan::segments(&ends(&config.after, names)?),
            Self::Budget(_) => return Ok(None),
        }))
    }
}

/// The lengths of `segments` segments (at most one a stage) that differ by 1 at most, longer ones
/// first.
fn equal(stages: usize, segments: usize) -> Vec<usize> {
    let segments = segments.clamp(1, stages);
    (0..segments).map(|at| stages / segments + usize::from(at < stages % segments)).collect()
}

/// The lengths of segments that end after the stages `after`.
fn ends(after: &[String], names: &[&str]) -> Result<Vec<usize>, Fault> {
    let mut ends = Vec::new();
    for (place, name) in after.iter().enumerate() {
        let Some(stage) = names.iter().position(|known| known == name) else {
            let near = names.iter().max_by(|a, b| {
                strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name))
            });
            let near = near.map(|near| format!("did you mean {near:?}? ")).unwrap_or_default();
            return Err(fault(
                format!("manual.after[{place}]"),
                format!("there is no stage called {name:?}"),
                format!("{near}the stages are {}", names.join(", ")),
            ));
        };
        ends.push(stage + 1);
    }
    // After the last stage nothing is left to end.
    ends.retain(|end| *end < names.len());
    ends.push(names.len());
    ends.sort_unstable();
    ends.dedup();
    let begins = std::iter::once(&0).chain(&ends);
    Ok(begins.zip(&ends).map(|(begin, end)| end - begin).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::NoSettings;
    use crate::memory::{ManualConfig, SequentialConfig};

    const NAMES: [&str; 7] = ["stem", "block1", "transition1", "block2", "norm5", "pool", "heads"];

    fn tree(config: &CheckpointingConfig) -> CheckpointPlan {
        config.checkpoint_plan(&NAMES).expect("fits").expect("needs no bytes")
    }

    #[test]
    fn policies_are_the_segments_that_they_say() {
        let sequential = |segments| CheckpointingConfig::Sequential(SequentialConfig { segments });
        let none = NoSettings {};
        for (config, lengths) in [
            (CheckpointingConfig::None(none), vec![7]),
            (sequential(1), vec![7]),
            (sequential(3), vec![3, 2, 2]),
            (sequential(99), vec![1; 7]),
            (CheckpointingConfig::Sqrt(none), vec![3, 2, 2]),
            (CheckpointingConfig::Every(none), vec![1; 7]),
        ] {
            assert_eq!(tree(&config), CheckpointPlan::segments(&lengths), "{config:?}");
        }
    }

    #[test]
    fn segments_end_where_they_are_told_to() {
        let manual = |after: &[&str]| {
            let after = after.iter().map(|name| (*name).to_owned()).collect();
            CheckpointingConfig::Manual(ManualConfig { after })
        };
        assert_eq!(tree(&manual(&["block2", "block1"])), CheckpointPlan::segments(&[2, 2, 3]));
        assert_eq!(tree(&manual(&[])), CheckpointPlan::segments(&[7]));
        assert_eq!(tree(&manual(&["heads"])), CheckpointPlan::segments(&[7]));
        let fault = manual(&["stem", "blok1"]).checkpoint_plan(&NAMES).expect_err("no such stage");
        assert_eq!(fault.key, "manual.after[1]");
        assert!(fault.help.is_some_and(|help| help.starts_with("did you mean \"block1\"?")));
    }
}
