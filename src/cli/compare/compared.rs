//! The predictions of a run that are compared, wherever they were saved.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::build::{FoldFolders, TrainedFolder};
use crate::cli::eval::{EVALUATION_FILE, PREDICTIONS_FILE, apart};
use crate::cli::{Failure, planned};
use crate::evaluate::{
    Fitted, Measured, MeasuredTable, Prediction, PredictionColumns, PredictionReader,
    PredictionTable, Settings, pooled,
};
use crate::model::{HeadConfig, Task};
use crate::plan::Plan;
use crate::report::HeadLabels;
use crate::run::EVALUATION;
use crate::run::state::{SavedState, read_state};

/// A run's predictions.
pub(super) struct Compared {
    /// As the command line names it.
    pub run: PathBuf,
    /// The file of the predictions.
    pub file: PathBuf,
    pub table: MeasuredTable,
    /// The heads and labels in their order.
    pub heads: Vec<HeadLabels>,
    /// The run's configuration; none of an ensemble.
    pub config: Option<String>,
    /// How intervals are taken.
    pub settings: Settings,
}

/// As much of `evaluation.json` as a comparison needs.
#[derive(Debug, Deserialize)]
struct Evaluated {
    heads: BTreeMap<String, EvaluatedHead>,
    models: Vec<EvaluatedModel>,
}

#[derive(Debug, Deserialize)]
struct EvaluatedHead {
    task: Task,
}

#[derive(Debug, Deserialize)]
struct EvaluatedModel {
    epoch: Option<u64>,
    step: Option<u64>,
}

impl Compared {
    /// The predictions of the run at `path` for the images `split`, or of the evaluation at `path`.
    pub fn open(path: &Path, split: &str) -> Result<Self, Failure> {
        if path.join(EVALUATION_FILE).is_file() {
            let (table, _) = evaluated(path)?;
            let file = path.join(PREDICTIONS_FILE);
            let heads = labels(&table);
            let (run, settings) = (path.to_owned(), Settings::default());
            return Ok(Self { run, file, table, heads, config: None, settings });
        }
        if let Some(folds) = FoldFolders::find(path) {
            return of_folds(path, &folds.complete()?, split);
        }
        let TrainedFolder { config, state } = TrainedFolder::find(path)?;
        let plan = planned(&config, &[])?;
        let text = fs::read_to_string(&config).map_err(Failure::other)?;
        let state = read_state(&state).map_err(Failure::state)?;
        let folder = config.parent().map(Path::to_owned).unwrap_or_default();
        let folder = folder.join(format!("{EVALUATION}{split}"));
        let (table, file) = match folder.join(EVALUATION_FILE).is_file() {
            true => of_folder(&folder, &state, split, &plan.heads)?,
            false => of_state(&state, split, &plan.heads)
                .and_then(|found| found.ok_or_else(|| unpredicted(path, split)))?,
        };
        Ok(Self {
            run: path.to_owned(),
            file,
            table,
            heads: heads_of(&plan),
            config: Some(text),
            settings: plan.evaluate.settings(plan.run.seed),
        })
    }
}

/// The predictions of the folds in the folder `path`, whose run folders are `runs`: what an evaluation has
/// written there, where that was of these states; else, of the validation images, what each fold has
/// saved with its own.
fn of_folds(path: &Path, runs: &[PathBuf], split: &str) -> Result<Compared, Failure> {
    let found = runs.iter().map(|run| TrainedFolder::find(run));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let plan = planned(&found[0].config, &[])?;
    let text = fs::read_to_string(&found[0].config).map_err(Failure::other)?;
    let states = found.iter().map(|found| read_state(&found.state).map_err(Failure::state));
    let states = states.collect::<Result<Vec<SavedState>, _>>()?;
    let folder = path.join(format!("{EVALUATION}{split}"));
    let written = folder.join(EVALUATION_FILE).is_file().then(|| evaluated(&folder)).transpose()?;
    let is_of = |model: &EvaluatedModel, state: &SavedState| {
        (model.epoch, model.step) == (Some(state.tag.epoch), Some(state.tag.step))
    };
    let is_current = |models: &[EvaluatedModel]| {
        models.len() == states.len() && models.iter().zip(&states).all(|(m, s)| is_of(m, s))
    };
    let (table, file) = match written.filter(|(_, models)| is_current(models)) {
        Some((table, _)) => (table, folder.join(PREDICTIONS_FILE)),
        None => {
            let tables = states.iter().map(|state| {
                saved(state, split, &plan.heads)?.ok_or_else(|| unpredicted(path, split))
            });
            let tables = tables.collect::<Result<Vec<PredictionTable>, Failure>>()?;
            let all = pooled(&tables.iter().collect::<Vec<_>>());
            let all = all.map_err(apart)?;
            let fitted = plan.evaluate.fit(&all);
            (all.measured(Some(&fitted)), path.join("fold-*"))
        }
    };
    Ok(Compared {
        run: path.to_owned(),
        file,
        table,
        heads: heads_of(&plan),
        config: Some(text),
        settings: plan.evaluate.settings(plan.run.seed),
    })
}

fn heads_of(plan: &Plan) -> Vec<HeadLabels> {
    let heads = plan.heads.iter();
    heads.map(|head| HeadLabels { name: head.name.clone(), labels: head.labels.clone() }).collect()
}

fn unpredicted(run: &Path, split: &str) -> Failure {
    let run = run.display();
    let help = format!("`trainer eval {run} --split {split}` makes them");
    Failure::data(format!("{run} has no predictions for `{split}`")).with_help(Some(help))
}

/// What an evaluation of the run has written, where that was of this state; of another state, what was
/// saved with this one, if these are the validation images.
fn of_folder(
    folder: &Path,
    state: &SavedState,
    split: &str,
    heads: &[HeadConfig],
) -> Result<(MeasuredTable, PathBuf), Failure> {
    let (table, models) = evaluated(folder)?;
    let [EvaluatedModel { epoch, step }] = models[..] else {
        return Ok((table, folder.join(PREDICTIONS_FILE)));
    };
    let (Some(epoch), Some(step)) = (epoch, step) else {
        return Ok((table, folder.join(PREDICTIONS_FILE)));
    };
    if (epoch, step) == (state.tag.epoch, state.tag.step) {
        return Ok((table, folder.join(PREDICTIONS_FILE)));
    }
    if let Some(found) = of_state(state, split, heads)? {
        return Ok(found);
    }
    let message = format!(
        "{} is of the model after epoch {epoch}, and the run now has one of epoch {}",
        folder.display(),
        state.tag.epoch
    );
    let help = "evaluate it again with `trainer eval`";
    Err(Failure::data(message).with_help(Some(help.to_owned())))
}

/// What was saved with a state about the validation images.
fn of_state(
    state: &SavedState,
    split: &str,
    heads: &[HeadConfig],
) -> Result<Option<(MeasuredTable, PathBuf)>, Failure> {
    let Some(table) = saved(state, split, heads)? else { return Ok(None) };
    let file = state.folder.join(PredictionTable::FILE);
    let fitted = state.files.get(Fitted::FILE).map(|bytes| {
        Fitted::from_json(&String::from_utf8_lossy(bytes), &state.folder.join(Fitted::FILE))
    });
    let fitted = fitted.transpose().map_err(Failure::state)?;
    Ok(Some((table.measured(fitted.as_ref()), file)))
}

/// The outputs that were saved with a state, where these are the images `split`.
fn saved(
    state: &SavedState,
    split: &str,
    heads: &[HeadConfig],
) -> Result<Option<PredictionTable>, Failure> {
    let bytes = state.files.get(PredictionTable::FILE).filter(|_| split == "validation");
    let file = state.folder.join(PredictionTable::FILE);
    let table = bytes.map(|bytes| PredictionTable::from_csv(bytes, heads, &file));
    table.transpose().map_err(Failure::data)
}

/// The files of an evaluation, read back.
fn evaluated(folder: &Path) -> Result<(MeasuredTable, Vec<EvaluatedModel>), Failure> {
    let file = folder.join(EVALUATION_FILE);
    let text = fs::read_to_string(&file);
    let text =
        text.map_err(|error| Failure::data(format!("cannot read {}: {error}", file.display())))?;
    let Evaluated { heads, models } = serde_json::from_str(&text)
        .map_err(|error| Failure::data(format!("`{}`: {error}", file.display())))?;
    let tasks = heads.into_iter().map(|(name, head)| (name, head.task)).collect();
    let file = folder.join(PREDICTIONS_FILE);
    let opened = fs::File::open(&file);
    let opened = opened
        .map_err(|error| Failure::data(format!("cannot read {}: {error}", file.display())))?;
    let reader = PredictionReader::new(opened, &file).map_err(Failure::data)?;
    Ok((measured(reader, &tasks, &file)?, models))
}

/// The table of a file of predictions of heads with these tasks.
fn measured(
    reader: PredictionReader<fs::File>,
    tasks: &BTreeMap<String, Task>,
    file: &Path,
) -> Result<MeasuredTable, Failure> {
    let columns: Vec<PredictionColumns> = reader.columns().to_vec();
    let wrong = |reason: String| Failure::data(format!("`{}`: {reason}", file.display()));
    let mut table = MeasuredTable::default();
    for PredictionColumns { head, label, truth, .. } in &columns {
        let task = *tasks
            .get(head)
            .ok_or_else(|| wrong(format!("{EVALUATION_FILE} beside it has no head `{head}`")))?;
        if !truth {
            return Err(wrong(format!("it does not tell the truth about `{head}/{label}`")));
        }
        let empty = Measured { task, labels: Vec::new(), values: Vec::new(), truth: Vec::new() };
        table.heads.entry(head.clone()).or_insert(empty).labels.push(label.clone());
    }
    for prediction in reader {
        let Prediction { path, patient, told } = prediction.map_err(Failure::data)?;
        let labels =
            told.map_err(|reason| wrong(format!("nothing is predicted of `{path}`: {reason}")))?;
        table.paths.push(path);
        table.patients.push(patient);
        for (column, label) in columns.iter().zip(labels) {
            if let Some(head) = table.heads.get_mut(&column.head) {
                head.values.push(label.value);
                head.truth.push(label.truth);
            }
        }
    }
    Ok(table)
}

/// The heads of a table with their labels.
fn labels(table: &MeasuredTable) -> Vec<HeadLabels> {
    let heads = table.heads.iter();
    heads
        .map(|(name, head)| HeadLabels { name: name.clone(), labels: head.labels.clone() })
        .collect()
}
