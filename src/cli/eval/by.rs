//! `--by`: what images are grouped by.

use crate::cli::Failure;
use crate::data::{self, DataError, Dataset};
use crate::evaluate::{Bands, Group, PredictionTable, groups};
use crate::model::Task;

/// Groups of a column that has more values than these are no groups but numbers or names.
const MOST_GROUPS: usize = 50;

/// What images are grouped by.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct By {
    /// A column, `source`, or a head of classes.
    pub name: String,
    /// Where the bands of a number begin.
    bands: Option<Bands>,
}

/// Reads `sex,age:40,60`: a number that follows a column with an edge is one more edge.
pub(super) fn read(texts: &[String]) -> Result<Vec<By>, Failure> {
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for part in texts.iter().flat_map(|text| text.split(',')).map(str::trim) {
        match (part.parse::<f64>(), found.last_mut()) {
            (Ok(edge), Some((_, edges))) if !edges.is_empty() => edges.push(edge),
            _ => {
                let banded = part.rsplit_once(':').and_then(|(name, edge)| {
                    Some((name.trim().to_owned(), vec![edge.trim().parse().ok()?]))
                });
                found.push(banded.unwrap_or_else(|| (part.to_owned(), Vec::new())));
            }
        }
    }
    let by = |(name, edges): (String, Vec<f64>)| {
        if name.is_empty() {
            let message = "--by names no column; write it as in `--by sex,age:40,60`";
            return Err(Failure::configuration(message));
        }
        let bands = Bands::new(&edges);
        if bands.is_none() && !edges.is_empty() {
            let message = format!("the edges of `{name}` in --by do not ascend");
            return Err(Failure::configuration(message));
        }
        Ok(By { name, bands })
    };
    found.into_iter().map(by).collect()
}

/// The field of each image of a list that it is grouped by.
pub(super) struct Fields {
    pub by: By,
    fields: Vec<String>,
}

impl By {
    /// The fields of the images at `indices` of `dataset`, in the order of `predictions`, which are of
    /// these images. `sources` are the names of the data sets.
    pub fn fields(
        &self,
        dataset: &Dataset,
        sources: &[String],
        indices: &[usize],
        predictions: &PredictionTable,
    ) -> Result<Fields, Failure> {
        let found = match data::column(dataset, &self.name) {
            Ok(fields) => indices.iter().map(|&index| fields[index].clone()).collect(),
            Err(_) if self.name == "source" => {
                let source = |&index: &usize| sources[dataset.samples()[index].source].clone();
                indices.iter().map(source).collect()
            }
            Err(error) => self.classes(predictions).ok_or_else(|| failure(error))?,
        };
        Ok(Fields { by: self.clone(), fields: found })
    }

    /// The true class of each image, of the head of this name.
    fn classes(&self, predictions: &PredictionTable) -> Option<Vec<String>> {
        let head = predictions.heads.get(&self.name)?;
        let targets = head.targets.values.iter().zip(&head.targets.mask);
        let class = |(&class, &mask): (&f32, &f32)| match mask == 0.0 {
            true => String::new(),
            false => head.labels.get(class as usize).cloned().unwrap_or_default(),
        };
        (head.task == Task::Multiclass).then(|| targets.map(class).collect())
    }
}

fn failure(error: DataError) -> Failure {
    let help = error.help();
    Failure::configuration(error).with_help(help)
}

impl Fields {
    /// The groups of the images at `places`, numbered as they stand there.
    pub fn groups(&self, places: &[usize]) -> Vec<Group> {
        let fields = places.iter().map(|&place| self.fields[place].as_str());
        match &self.by.bands {
            None => groups(fields),
            Some(bands) => bands.groups(&fields.map(number).collect::<Vec<f64>>()),
        }
    }

    /// What makes the groups of no use, if anything does.
    pub fn check(&self) -> Result<(), Failure> {
        let name = &self.by.name;
        if self.by.bands.is_some() {
            let odd = self.fields.iter().find(|field| !field.is_empty() && number(field).is_nan());
            return odd.map_or(Ok(()), |odd| {
                let message = format!("`{name}` has edges in --by, and `{odd}` is no number");
                Err(Failure::configuration(message))
            });
        }
        let all: Vec<usize> = (0..self.fields.len()).collect();
        let found = self.groups(&all).len();
        if found <= MOST_GROUPS {
            return Ok(());
        }
        let message = format!("`{name}` has {found} values, which are too many groups");
        let help = format!("cut numbers into bands: --by {name}:40,60");
        Err(Failure::configuration(message).with_help(Some(help)))
    }
}

/// The number that a field tells, NaN where it tells none.
fn number(field: &str) -> f64 {
    field.parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Result<Vec<(String, Option<Bands>)>, String> {
        let found = read(&[text.to_owned()]).map_err(|failure| failure.to_string())?;
        Ok(found.into_iter().map(|by| (by.name, by.bands)).collect())
    }

    #[test]
    fn columns_and_their_edges_are_told_apart() {
        let bands = |edges: &[f64]| Bands::new(edges);
        let found = read_one("sex, age:40,60,AP/PA,dose:0.5,source").expect("reads");
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["sex", "age", "AP/PA", "dose", "source"]);
        assert_eq!(found[1].1, bands(&[40.0, 60.0]));
        assert_eq!(found[3].1, bands(&[0.5]));
        assert_eq!(found[0].1, None);
        assert_eq!(read_one("a:b").expect("reads")[0].0, "a:b");
        assert!(read_one("age:60,40").expect_err("descends").contains("do not ascend"));
        assert!(read_one("").expect_err("nothing").contains("names no column"));
    }
}
