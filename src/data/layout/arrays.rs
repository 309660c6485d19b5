//! `[data.arrays]`: images and targets in NumPy files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Column, Kind, Layout, List, Row, Vocabulary};
use crate::data::config::{ArraysConfig, ImageConfig, Normalize, NormalizeKind, Uncertain};
use crate::data::error::DataError;
use crate::data::npy::{Array, parts};
use crate::data::opened::{note_names, note_numbers};
use crate::data::source::beside;
use crate::fault::{Fault, fault};
use crate::model::{HeadConfig, Task};
use crate::screen::counted;

/// Images of an array that are looked at, spread over it with the first and the last.
const LOOKED_AT: usize = 9;
/// Levels beyond this are no levels between black (0) and white (1).
const FAR: f32 = 10.0;

impl Layout for ArraysConfig {
    fn vocabulary(&self, heads: &[HeadConfig]) -> Vocabulary {
        let mut columns = Vec::new();
        for head in heads {
            let Some(target) = self.targets.get(&head.name) else { continue };
            let column = |label: &str, kind| Column {
                label: label.to_owned(),
                sources: vec![target.clone()],
                kind,
                head: Some(head.name.clone()),
            };
            match head.task {
                Task::Multiclass => {
                    columns.push(column(&head.name, Kind::Classes(head.labels.clone())));
                }
                Task::Regression => {
                    columns.extend(head.labels.iter().map(|label| column(label, Kind::Number)));
                }
                Task::Multilabel | Task::Binary => {
                    columns.extend(head.labels.iter().map(|label| column(label, Kind::Finding)));
                }
            }
        }
        let targets = Some(self.targets.keys().cloned().collect());
        Vocabulary { targets, ..Vocabulary::of(columns) }
    }

    fn configured_root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    fn check_images(&self, image: &ImageConfig) -> Result<(), DataError> {
        let (path, array) = self.open(&self.images)?;
        let channels = image.channels as u64;
        let &[_, planes, _, last] = array.shape() else { return Ok(()) };
        if planes == 1 || planes == channels {
            return Ok(());
        }
        let shape = array.shape();
        let reason = match last == channels || matches!(last, 1 | 3 | 4) {
            true => format!(
                "its shape {shape:?} looks like [images, height, width, channels], and channels come \
                 second here: save numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))"
            ),
            false => format!(
                "its shape is {shape:?}, so its images have {planes} channels, and \
                 `data.image.channels` is {channels}"
            ),
        };
        Err(malformed(&path, reason))
    }

    fn untold_patients(&self) -> Option<(&'static str, String)> {
        let told = "write the array that tells them apart".to_owned();
        self.patients.is_none().then_some(("patients", told))
    }

    fn odd_images(&self, image: &ImageConfig) -> Option<String> {
        let Normalize::Named(
            kind @ (NormalizeKind::Unit | NormalizeKind::Imagenet | NormalizeKind::Xrv),
        ) = &image.normalize
        else {
            return None;
        };
        let (_, array) = self.open(&self.images).ok()?;
        let images = usize::try_from(*array.shape().first()?).ok()?;
        let places = (0..LOOKED_AT).map(|place| place * images.saturating_sub(1) / (LOOKED_AT - 1));
        let ranges = places.filter_map(|place| array.image(place).ok()?.samples.range());
        let [low, high] =
            ranges.reduce(|[low, high], [lower, higher]| [low.min(lower), high.max(higher)])?;
        let kind = serde_json::to_string(kind).ok()?;
        (low < -FAR || high > FAR).then(|| {
            format!(
                "hold values from {low} to {high} in the few that were looked at, and \
                 `normalize = {kind}` takes 0 for black and 1 for white; numbers that are not 8- or \
                 16-bit unsigned integers are not scaled: save them as such, bring them to 0 to 1, \
                 or write `normalize = \"per_image\"` or numbers of your own under [data.image]"
            )
        })
    }

    fn lists(&self) -> &[List] {
        match self.split {
            Some(_) => &[List::Train, List::Validation, List::Test],
            None => &[List::Train],
        }
    }

    fn read(
        &self,
        vocabulary: &Vocabulary,
        _needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        let (images, count) = self.images()?;
        let values = self.values(vocabulary, count)?;
        let width = vocabulary.columns.len();
        let patients = self.patients.as_ref().map(|name| self.names(name, count)).transpose()?;
        let split = self.split.as_ref().map(|name| self.integers(name, count)).transpose()?;
        let table: Arc<Path> = images.as_path().into();
        let mut lists: BTreeMap<List, Vec<Row>> =
            wanted.iter().map(|list| (*list, Vec::new())).collect();
        for item in 0..count {
            let list = match split.as_ref().map(|split| split[item]) {
                None | Some(0) => List::Train,
                Some(1) => List::Validation,
                Some(2) => List::Test,
                Some(other) => {
                    let name = self.split.as_deref().unwrap_or_default();
                    let expected = "0 (train), 1 (validation) or 2 (test)";
                    return Err(self.bad(name, item, other.to_string(), expected));
                }
            };
            let Some(rows) = lists.get_mut(&list) else { continue };
            rows.push(Row {
                path: images.clone(),
                item: Some(item),
                table: table.clone(),
                line: item as u64 + 1,
                patient: patients
                    .as_ref()
                    .map_or_else(|| item.to_string(), |patients| patients[item].clone()),
                values: values[item * width..(item + 1) * width].to_vec(),
            });
        }
        Ok(lists)
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        None
    }

    fn check(&self) -> Result<(), Fault> {
        if self.images.is_empty() {
            let help = "write the array's file, such as \"images.npy\"";
            return Err(fault("images", "`images` is empty", help));
        }
        Ok(())
    }
}

impl ArraysConfig {
    /// The images' file, and how many there are.
    fn images(&self) -> Result<(PathBuf, usize), DataError> {
        let (path, array) = self.open(&self.images)?;
        let shape = array.shape();
        if !matches!(shape.len(), 3 | 4) {
            let reason = format!(
                "its shape is {shape:?}, not [images, height, width] or [images, channels, height, \
                 width]"
            );
            return Err(malformed(&path, reason));
        }
        if shape[0] == 0 {
            return Err(DataError::NoImages {
                table: path,
                reason: "its first side is 0".to_owned(),
            });
        }
        Ok((path, shape[0] as usize))
    }

    /// The targets of all heads, `[images, columns of the vocabulary]`.
    fn values(&self, vocabulary: &Vocabulary, count: usize) -> Result<Vec<f32>, DataError> {
        let width = vocabulary.columns.len();
        let mut values = vec![f32::NAN; count * width];
        let mut first = 0;
        while first < width {
            let head = &vocabulary.columns[first].head;
            let of_head =
                vocabulary.columns[first..].iter().take_while(|column| column.head == *head);
            let columns: Vec<&Column> = of_head.collect();
            let name = columns[0].sources[0].as_str();
            let numbers = self.targets(name, count, columns.len())?;
            for (place, number) in numbers.into_iter().enumerate() {
                let (item, at) = (place / columns.len(), place % columns.len());
                let value = target(number, &columns[at].kind)
                    .map_err(|expected| self.bad(name, item, number.to_string(), expected))?;
                values[item * width + first + at] = value;
            }
            first += columns.len();
        }
        Ok(values)
    }

    fn targets(&self, name: &str, count: usize, labels: usize) -> Result<Vec<f64>, DataError> {
        let (path, array) = self.open(name)?;
        let (shape, count, labels) = (array.shape(), count as u64, labels as u64);
        if shape != [count, labels] && !(labels == 1 && shape == [count]) {
            let wanted =
                if labels == 1 { format!("[{count}]") } else { format!("[{count}, {labels}]") };
            let reason = format!(
                "its shape is {shape:?}, and {count} images with {} need {wanted}",
                counted(labels as usize, "label", "labels")
            );
            return Err(malformed(&path, reason));
        }
        let numbers = array.numbers().map_err(|reason| malformed(&path, reason))?;
        note_numbers(&path, &numbers);
        Ok(numbers)
    }

    /// An array of one thing for each image.
    fn column(&self, name: &str, count: usize) -> Result<(PathBuf, Array), DataError> {
        let (path, array) = self.open(name)?;
        let (shape, count) = (array.shape(), count as u64);
        match shape == [count] || shape == [count, 1] {
            true => Ok((path, array)),
            false => {
                let reason = format!("its shape is {shape:?}, and {count} images need [{count}]");
                Err(malformed(&path, reason))
            }
        }
    }

    fn names(&self, name: &str, count: usize) -> Result<Vec<String>, DataError> {
        let (path, array) = self.column(name, count)?;
        let names = array.names().map_err(|reason| malformed(&path, reason))?;
        match array.numbers() {
            Ok(numbers) => note_numbers(&path, &numbers),
            Err(_) => note_names(&path, &names),
        }
        match names.iter().position(String::is_empty) {
            None => Ok(names),
            Some(item) => Err(self.bad(name, item, "``".to_owned(), "a patient's name or number")),
        }
    }

    fn integers(&self, name: &str, count: usize) -> Result<Vec<i64>, DataError> {
        let (path, array) = self.column(name, count)?;
        let numbers = array.numbers().map_err(|reason| malformed(&path, reason))?;
        note_numbers(&path, &numbers);
        let integer = |(item, number): (usize, f64)| match number.fract() {
            0.0 => Ok(number as i64),
            _ => Err(self.bad(name, item, number.to_string(), "an integer")),
        };
        numbers.into_iter().enumerate().map(integer).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.as_ref().map_or_else(|| name.into(), |root| root.join(name))
    }

    fn open(&self, name: &str) -> Result<(PathBuf, Array), DataError> {
        let path = self.path(name);
        let (file, _) = parts(&path);
        if let Ok(false) = file.try_exists() {
            let meant = beside(&file, Path::is_file)
                .map_or(String::new(), |meant| format!("did you mean `{}`? ", meant.display()));
            let help = format!("{meant}correct {}, which names it", self.keys_of(name));
            return Err(DataError::NoTable { table: file, help });
        }
        let array = Array::open(&path).map_err(|reason| malformed(&path, reason))?;
        Ok((path, array))
    }

    /// The keys that name an array.
    fn keys_of(&self, name: &str) -> String {
        let own = [
            ("images", Some(self.images.as_str())),
            ("patients", self.patients.as_deref()),
            ("split", self.split.as_deref()),
        ];
        let own = own.into_iter().filter(|(_, own)| *own == Some(name));
        let own = own.map(|(key, _)| format!("`{key}`"));
        let targets = self.targets.iter().filter(|(_, target)| *target == name);
        let targets = targets.map(|(head, _)| format!("`targets.{head}`"));
        own.chain(targets).collect::<Vec<_>>().join(" and ")
    }

    fn bad(&self, name: &str, item: usize, value: String, expected: &'static str) -> DataError {
        let table = self.path(name);
        DataError::BadTarget { array: table, image: item, value, expected }
    }
}

fn malformed(path: &Path, reason: String) -> DataError {
    DataError::MalformedArray { array: path.to_owned(), reason }
}

/// A number of an array as a row has it, or what should stand there.
fn target(number: f64, kind: &Kind) -> Result<f32, &'static str> {
    match kind {
        _ if number.is_nan() => Ok(f32::NAN),
        Kind::Finding if (0.0..=1.0).contains(&number) => Ok(number as f32),
        Kind::Finding => Err("0 (negative) to 1 (positive), or NaN (unknown)"),
        Kind::Number if (number as f32).is_finite() => Ok(number as f32),
        Kind::Number => Err("a finite number, or NaN (unknown)"),
        Kind::Classes(classes)
            if number.fract() == 0.0 && (0.0..classes.len() as f64).contains(&number) =>
        {
            Ok(number as f32)
        }
        Kind::Classes(_) => {
            Err("the number of one of the head's labels, counted from 0, or NaN (unknown)")
        }
    }
}

#[cfg(test)]
mod tests;
