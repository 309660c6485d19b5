//! `--set KEY=VALUE`, shared by the subcommands that read a configuration.

use std::path::Path;

use clap::Args;

/// Changes to the configuration, made on the command line.
#[derive(Debug, Default, Args)]
pub struct Overrides {
    /// Changes one key of the configuration; may be given several times
    ///
    /// KEY is the path of a key, such as `train.batch_size`. VALUE is read as TOML, or as a string if
    /// it is not TOML. A table chooses a variant: `model={densenet={depth=169}}`. Single quotes keep
    /// double quotes from the shell: --set 'run.name="second-try"'.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<String>,
}

/// Whether one of the changes is of `[evaluate]`.
pub(super) fn change_evaluate(set: &[String]) -> bool {
    set.iter().any(|text| text.trim_start().starts_with("evaluate"))
}

/// The weights at `path`, as a change to the configuration.
pub(super) fn init(path: &Path) -> String {
    format!("model.init={}", toml::Value::String(path.display().to_string()))
}

/// Lets pass what looks like an assignment; the configuration's loader reads the rest and points at
/// what is wrong.
pub(super) fn assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write KEY=VALUE, such as train.batch_size=32".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_has_a_key_and_an_equals_sign() {
        for right in ["train.batch_size=32", "model={densenet={depth=169}}", "run.name=\"a=b\""] {
            assert_eq!(assignment(right).as_deref(), Ok(right));
        }
        for wrong in ["train.batch_size", "", "=32", " =32"] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
    }
}
