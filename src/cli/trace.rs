//! `trainer trace`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use super::overrides::{Overrides, assignment};
use super::{Failure, Kind, output, whole};
use crate::build::{self, BuildError, Tracer};
use crate::config::{self, Combination, Loaded, Source};
use crate::plan::{self, Plan};
use crate::report::{StepTrace, courses_to_svg};
use crate::screen::{say, tell_progress};

/// Takes one training step and shows its memory, module by module
///
/// The step is taken on a made-up batch; the data are not opened. Every module has a line before its
/// forward pass, one after it and one after its backward pass. Each line says how memory changed since
/// the line before. The lines go to standard output and to <run.output>/<run.name>-trace/, as
/// trace.log and trace.json, with a picture, trace.svg. With --grid every combination has a log and a
/// curve of its own.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer trace configs/experiments/07_resnet18_memory.toml
  trainer trace configs/xray_densenet.toml --set train.batch_size=8 \\
      --grid 'memory.checkpointing=\"none\",\"sqrt\",\"every\"'")]
pub struct Trace {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// The values that one key takes; with several --grid every combination is traced
    ///
    /// The values are the elements of a TOML array, without its brackets, as in `trainer sweep`.
    #[arg(long = "grid", value_name = "KEY=V1,V2,…", value_parser = assignment)]
    grid: Vec<String>,
    /// The folder of the files, instead of <run.output>/<run.name>-trace/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints the content of trace.json instead of the lines
    #[arg(long)]
    json: bool,
}

/// A strategy to trace.
struct Asked {
    name: String,
    set: Map<String, Value>,
    plan: Plan,
    source: Source,
}

/// Traces.
pub fn execute(command: &Trace) -> Result<(), Failure> {
    let asked = asked(command)?;
    let run = &asked[0].plan.run;
    let default = || run.output.join(format!("{}-trace", run.name));
    let folder = command.out.clone().unwrap_or_else(default);
    std::fs::create_dir_all(&folder).map_err(|error| unwritable(&folder, &error))?;
    let title = format!("{}: memory over a training step", run.name);
    let (mut traces, mut failure): (Vec<StepTrace>, Option<Failure>) = (Vec::new(), None);
    let mut shown = String::new();
    let mut tracer = Tracer::default();
    if asked.iter().any(|asked| asked.plan.depth() > 1) {
        say(
            "warning: the memory is that of the whole model on one device; devices.svg shows what each device \
             of the pipeline does",
        );
    }
    for (number, Asked { name, set, plan, source }) in asked.iter().enumerate() {
        let (trace, outcome) = match tracer.trace(plan, name.clone(), set.clone()) {
            Ok(traced) => traced,
            // The others may fit.
            Err(BuildError::NothingFits(unfit)) if asked.len() > 1 => {
                say(format_args!("warning: {name} is left out: {unfit}"));
                let told = "what does not fit its budget was left out";
                failure = failure.or(Some(Failure::new(Kind::OutOfMemory, told)));
                continue;
            }
            Err(error) => return Err(super::unopened(error, source)),
        };
        if let (Some(failure), true) = (&trace.failure, outcome.is_ok()) {
            say(format_args!("warning: {name}: {}", failure.message));
        }
        let file = folder.join(match asked.len() {
            1 => "trace.log".to_owned(),
            _ => format!("trace-{}-{}.log", number + 1, slug(name)),
        });
        write(&file, &trace.to_log())?;
        match asked.len() {
            1 => shown = trace.to_log(),
            _ => shown += &format!("{name}: peak {}; {}\n", trace.peak(), file.display()),
        }
        traces.push(trace);
        write(&folder.join("trace.svg"), &StepTrace::to_svg(&title, &traces))?;
        write(&folder.join("trace.json"), &to_json(&run.name, &traces)?)?;
        let last = traces.last().map(|trace| trace.devices.as_slice()).unwrap_or_default();
        if !last.is_empty() {
            let file = folder.join(match asked.len() {
                1 => "devices.svg".to_owned(),
                _ => format!("devices-{}-{}.svg", number + 1, slug(name)),
            });
            let title = format!("{name}: the devices over a training step");
            write(&file, &courses_to_svg(&title, last))?;
        }
        failure = failure.or(outcome.err().map(Failure::from));
    }
    if !traces.is_empty() {
        output::print(&if command.json { to_json(&run.name, &traces)? } else { shown })?;
        let written = folder.display();
        tell_progress(&format!("written to {written}: trace.svg, trace.json and the lines"));
    }
    failure.map_or(Ok(()), Err)
}

fn asked(command: &Trace) -> Result<Vec<Asked>, Failure> {
    if command.grid.is_empty() {
        let (config, set) = (&command.config, &command.overrides.set);
        let (plan, source) = super::located_for(config, set, build::check_here)?;
        return Ok(vec![Asked { name: plan.run.name.clone(), set: Map::new(), plan, source }]);
    }
    let grid = config::load_grid(&command.config, &command.overrides.set, &command.grid);
    let asked = |mut combination: Combination| -> Result<Asked, Failure> {
        super::scale::fill_in(&mut combination.loaded);
        let Loaded { config, source } = combination.loaded.clone();
        let plan = plan::plan(config).and_then(|plan| build::check_here(&plan).map(|()| plan));
        let plan = plan.map_err(|fault| combination.error(source.error(fault)));
        let json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_default();
        let set = combination.set.iter().map(|(key, value)| (key.clone(), json(value)));
        let (name, set, plan) = (name(&combination.set), set.collect(), plan?);
        Ok(Asked { name, set, plan, source })
    };
    grid?.combinations.into_iter().map(asked).collect()
}

/// The last part of each key with its value: the rest is the same everywhere or seldom needed.
fn name(set: &[(String, toml::Value)]) -> String {
    let short = |(key, value): &(String, toml::Value)| {
        let key = key.rsplit('.').next().unwrap_or(key);
        match value {
            toml::Value::String(word) => format!("{key}={word}"),
            other => format!("{key}={}", other.to_string().replace(" ", "")),
        }
    };
    set.iter().map(short).collect::<Vec<_>>().join(", ")
}

/// Letters and digits of `name`, parted by hyphens.
fn slug(name: &str) -> String {
    let parts = name.split(|sign: char| !sign.is_ascii_alphanumeric());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn to_json(name: &str, traces: &[StepTrace]) -> Result<String, Failure> {
    let strategies: Vec<Value> = traces.iter().map(StepTrace::to_json).collect();
    let whole = json!({ "name": name, "strategies": strategies });
    serde_json::to_string_pretty(&whole).map_err(Failure::other)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    whole::write(path, text).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let shown = path.display();
    Failure::other(format!("cannot write {shown}: {error}"))
        .with_help(Some("--out names another folder".to_owned()))
}
