//! Random samples in the arrays that a configuration names.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::config::{ArraysConfig, DataConfig};
use super::error::DataError;
use crate::fault::{Fault, fault};
use crate::model::{HeadConfig, Task};
use crate::random::stream;

/// How many samples, and which.
#[derive(Debug, Clone, Copy)]
pub struct RandomSettings {
    /// How many; 1 or more.
    pub samples: usize,
    /// Another seed gives others.
    pub seed: u64,
}

/// The arrays of `config` that random samples can be written into.
///
/// # Errors
/// No `[data.arrays]`, arrays in archives, arrays of patients or splits.
pub fn check_random(config: &DataConfig) -> Result<&ArraysConfig, Fault> {
    let Some(arrays) = &config.layout.arrays else {
        let message = "random samples are written into `[data.arrays]`, which is not there";
        let help = "add `[data.arrays]` with `images` and `targets` in place of other data; \
                    `trainer data phantom` draws radiographs";
        return Err(fault("data", message, help));
    };
    for (name, given) in [("patients", &arrays.patients), ("split", &arrays.split)] {
        if given.is_some() {
            let message = format!("random samples have no `{name}`");
            return Err(fault(format!("data.arrays.{name}"), message, "remove it"));
        }
    }
    let targets = arrays.targets.iter().map(|(head, name)| (format!("targets.{head}"), name));
    for (key, name) in std::iter::once(("images".to_owned(), &arrays.images)).chain(targets) {
        if Path::new(name).extension().is_none_or(|kind| kind != "npy") {
            let message = format!("random samples cannot be written into {name:?}");
            let help = "name a file that ends in `.npy`";
            return Err(fault(format!("data.arrays.{key}"), message, help));
        }
    }
    Ok(arrays)
}

/// Writes the arrays of images and targets that `[data.arrays]` names: images and numbers from
/// U(0, 1), findings 0 or 1, classes equally likely. Returns their files.
///
/// # Errors
/// What [`check_random`] refuses, and a file that is there already or cannot be written.
pub fn write_random(
    config: &DataConfig,
    heads: &[HeadConfig],
    settings: RandomSettings,
) -> Result<Vec<PathBuf>, DataError> {
    let arrays = check_random(config).map_err(|fault| DataError::Config(fault.message))?;
    let path =
        |name: &str| arrays.root.as_ref().map_or_else(|| name.into(), |root| root.join(name));
    let samples = settings.samples;
    let random = |purpose: &str| stream(settings.seed, &format!("random/{purpose}"), &[]);
    let [height, width] = config.image.size;
    let shape = vec![samples, config.image.channels, height, width];
    let mut written = vec![path(&arrays.images)];
    write(&written[0], &shape, &mut random("images"), |random| random.random::<f32>())?;
    for head in heads {
        let Some(name) = arrays.targets.get(&head.name) else { continue };
        let shape = match head.task {
            Task::Multiclass => vec![samples],
            _ => vec![samples, head.labels.len()],
        };
        let draw = |random: &mut ChaCha8Rng| match head.task {
            Task::Multiclass => random.random_range(0..head.labels.len()) as f32,
            Task::Multilabel | Task::Binary => f32::from(u8::from(random.random::<bool>())),
            Task::Regression => random.random::<f32>(),
        };
        let target = path(name);
        write(&target, &shape, &mut random(&format!("targets/{}", head.name)), draw)?;
        written.push(target);
    }
    Ok(written)
}

/// Writes an array of 32-bit numbers, which is complete or not there.
fn write(
    path: &Path,
    shape: &[usize],
    random: &mut ChaCha8Rng,
    draw: impl Fn(&mut ChaCha8Rng) -> f32,
) -> Result<(), DataError> {
    let failed = |source| DataError::Io { action: "write", path: path.to_owned(), source };
    if path.exists() {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "it is there already");
        return Err(failed(source));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let partial = path.with_extension("npy.partial");
    write_numbers(&partial, shape, random, draw)
        .and_then(|()| fs::rename(&partial, path))
        .map_err(failed)
}

fn write_numbers(
    path: &Path,
    shape: &[usize],
    random: &mut ChaCha8Rng,
    draw: impl Fn(&mut ChaCha8Rng) -> f32,
) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&header(shape))?;
    for _ in 0..shape.iter().product() {
        file.write_all(&draw(random).to_le_bytes())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// What stands before the numbers, format 1.0:
/// <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
fn header(shape: &[usize]) -> Vec<u8> {
    let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({sides}), }}");
    // Ten bytes before the text and a line feed behind it, in all a multiple of 64.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{text:<width$}\n", width = length - 1).into_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::open;

    fn head(text: &str) -> HeadConfig {
        toml::from_str(text).expect("reads")
    }

    #[test]
    fn what_is_written_opens_with_the_shapes_of_the_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("new");
        let config: DataConfig = toml::from_str(&format!(
            "image = {{ size = [3, 5], channels = 7 }}\nvalidation = {{ fraction = 0.25 }}\n\
             [arrays]\nroot = {root:?}\nimages = 'x.npy'\n\
             targets = {{ numbers = 'y.npy', kind = 'k.npy', signs = 's.npy' }}"
        ))
        .expect("reads");
        let heads = [
            head("name = 'numbers'\ntask = 'regression'\nlabels = { count = 300, prefix = 'y' }"),
            head("name = 'kind'\ntask = 'multiclass'\nlabels = ['a', 'b', 'c']"),
            head("name = 'signs'\ntask = 'multilabel'\nlabels = ['d', 'e']"),
        ];
        let settings = RandomSettings { samples: 40, seed: 7 };
        assert_eq!(write_random(&config, &heads, settings).expect("writes").len(), 4);
        let splits = open(&config, &heads, 7, crate::data::untold).expect("opens");
        assert_eq!([splits.train.len(), splits.validation.len()], [30, 10]);
        let targets = splits.train.targets(&(0..30).collect::<Vec<_>>());
        assert_eq!(targets.iter().map(|one| one.width).collect::<Vec<_>>(), [300, 1, 2]);
        let mean = targets[0].values.iter().sum::<f32>() / 9000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert!(targets[0].mask.iter().all(|known| *known == 1.0));
        for class in [0.0, 1.0, 2.0] {
            assert!(targets[1].values.contains(&class));
        }
        let counts = splits.train.label_counts(0);
        assert_eq!((counts.positives.len(), counts.positives[299]), (300, 30.0));
        let again = write_random(&config, &heads, settings).expect_err("is there");
        assert!(again.to_string().contains("already"), "{again}");
    }

    #[test]
    fn headers_end_where_numpy_aligns_them() {
        for shape in [vec![1], vec![8766, 20, 19, 22], vec![usize::MAX; 9]] {
            let header = header(&shape);
            assert_eq!(header.len() % 64, 0);
            assert_eq!(header.last(), Some(&b'\n'));
        }
    }
}
