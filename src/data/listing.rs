//! Images that are named by their files and have no labels: those to predict.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::{CsvConfig, DataConfig};
use super::dataset::{Dataset, Sample};
use super::error::DataError;
use super::image::is_image;
use super::table::Table;

/// Images to predict.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The images, in the order in which they were named, those of a folder by their paths. It has no
    /// head.
    pub images: Dataset,
    /// Files in folders that are passed over, since they are no images.
    pub passed_over: usize,
    /// How often an image was named again.
    pub repeated: usize,
}

/// The images that `named` names: files, folders with all that is below them, and tables (`.csv`, `.tsv`,
/// `.parquet`) with a column of paths, which count from the table's folder. The column's name is the one
/// that `data.csv.image` has in the configuration, else `path`; that of patients likewise, else
/// `patient`. Where nothing names patients, each image is a patient of its own.
///
/// Of the files in a folder those are images that begin as one or are called like one (`.png`, `.dcm`
/// and so on). A file that is named itself, or by a table, always counts: where it is none, its
/// prediction fails.
///
/// # Errors
/// A name that nothing has, a table that is wrong or lacks the column, and no image at all.
pub fn list_images(named: &[PathBuf], config: &DataConfig) -> Result<Listing, DataError> {
    let mut listed = Listed::default();
    let columns = Columns::of(config);
    for path in named {
        let about = fs::metadata(path).map_err(|error| unreadable(path, error))?;
        if about.is_dir() {
            listed.folder(path)?;
        } else if Table::is_one(path) {
            listed.table(path, &columns)?;
        } else {
            listed.add(path.clone(), path.as_path().into(), 1, None);
        }
    }
    let Listed { samples, passed_over, repeated, .. } = listed;
    match (samples.is_empty(), named.first()) {
        (true, Some(first)) => {
            let reason = format!("none of {passed_over} files is PNG, JPEG, TIFF or DICOM");
            Err(DataError::NoImages { table: first.clone(), reason })
        }
        _ => Ok(Listing { images: Dataset::unlabelled(samples), passed_over, repeated }),
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> DataError {
    DataError::Io { action: "read", path: path.to_owned(), source }
}

/// The names of a table's columns, those to look for first.
struct Columns<'a> {
    image: Vec<&'a str>,
    patient: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(config: &'a DataConfig) -> Self {
        let sources = config.sources.iter().filter_map(|source| source.layout.csv.as_ref());
        let tables: Vec<&CsvConfig> = config.layout.csv.iter().chain(sources).collect();
        let patients = tables.iter().filter_map(|table| table.patient.as_deref());
        Self {
            image: tables.iter().map(|table| table.image.as_str()).chain(["path"]).collect(),
            patient: patients.chain(["patient"]).collect(),
        }
    }
}

#[derive(Default)]
struct Listed {
    samples: Vec<Sample>,
    known: BTreeSet<PathBuf>,
    passed_over: usize,
    repeated: usize,
}

impl Listed {
    fn add(&mut self, path: PathBuf, table: Arc<Path>, line: u64, patient: Option<&str>) {
        if !self.known.insert(path.clone()) {
            self.repeated += 1;
            return;
        }
        let patient = patient.map_or_else(|| path.display().to_string(), str::to_owned);
        self.samples.push(Sample { path, item: None, table, line, patient, source: 0 });
    }

    /// All images below a folder, by their paths. A folder that a link leads to a second time is not
    /// entered again.
    fn folder(&mut self, root: &Path) -> Result<(), DataError> {
        let table: Arc<Path> = root.into();
        let (mut entered, mut left) = (BTreeSet::new(), vec![root.to_owned()]);
        let mut files = Vec::new();
        while let Some(folder) = left.pop() {
            let failed = |error| unreadable(&folder, error);
            if !entered.insert(folder.canonicalize().map_err(failed)?) {
                continue;
            }
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.is_dir() { left.push(path) } else { files.push(path) }
            }
        }
        files.sort_unstable();
        for (place, path) in files.into_iter().enumerate() {
            match is_image(&path) {
                true => self.add(path, table.clone(), place as u64 + 1, None),
                false => self.passed_over += 1,
            }
        }
        Ok(())
    }

    fn table(&mut self, path: &Path, columns: &Columns<'_>) -> Result<(), DataError> {
        let table = Table::read(path, || "name a table that is there".to_owned())?;
        let find = |names: &[&str]| names.iter().find_map(|name| table.column(name));
        let image = match find(&columns.image) {
            Some(column) => column,
            None => {
                let help = |_: &[String]| {
                    "the column of the images' paths has the name that the run's configuration has \
                     under `data.csv.image`, or is called `path`"
                        .to_owned()
                };
                table.columns(&columns.image[..1], help)?[0]
            }
        };
        let patient = find(&columns.patient);
        let root = path.parent().unwrap_or(Path::new(""));
        for row in table.rows() {
            if row.is_unknown(image) {
                let help = "write the image's path, or remove the row";
                return Err(row.bad(image, "the path of an image").helped(help));
            }
            let patient = patient.filter(|column| !row.is_unknown(*column));
            let patient = patient.map(|column| row.at(column));
            self.add(root.join(row.at(image)), table.path().clone(), row.line(), patient);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> DataConfig {
        let rest = "image = { size = [8, 8] }\n";
        toml::from_str(&format!("{rest}{text}")).expect("reads")
    }

    fn png() -> Vec<u8> {
        super::super::image::png::encode(&[0; 4], [2, 2]).expect("encodes")
    }

    fn write(root: &Path, files: &[(&str, &[u8])]) {
        for (name, bytes) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("is made");
            fs::write(path, bytes).expect("writes");
        }
    }

    fn listed(root: &Path, named: &[&str], config: &DataConfig) -> Result<Listing, DataError> {
        list_images(&named.iter().map(|name| root.join(name)).collect::<Vec<_>>(), config)
    }

    fn names(root: &Path, listing: &Listing) -> Vec<String> {
        let samples = listing.images.samples().iter();
        let name = |sample: &Sample| sample.path.strip_prefix(root).expect("below").to_owned();
        samples.map(|sample| name(sample).display().to_string()).collect()
    }

    #[test]
    fn a_folder_gives_its_images_by_their_paths_and_counts_the_other_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let png = png();
        let files: [(&str, &[u8]); 6] = [
            ("b/2.png", &png),
            ("a.png", &png),
            ("b/without_ending", &png),
            ("b/10.png", b""),
            ("notes.txt", b"no image"),
            ("b/c/table.csv", b"path\n../../a.png\n"),
        ];
        write(root, &files);
        let listing = listed(root, &["", "a.png"], &config("")).expect("lists");
        assert_eq!(names(root, &listing), ["a.png", "b/10.png", "b/2.png", "b/without_ending"]);
        assert_eq!((listing.passed_over, listing.repeated), (2, 1));
        assert!(listing.images.targets(&[0, 1]).is_empty(), "there are no labels");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(root, root.join("b/again")).expect("links");
            let listing = listed(root, &[""], &config("")).expect("lists");
            assert_eq!(names(root, &listing).len(), 4, "a link back is not followed for ever");
        }
    }

    #[test]
    fn a_table_names_images_and_patients_by_the_columns_of_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let table = "path,file,mrn\nx.png,images/1.png,7\ny.png,images/2.png,\n";
        write(root, &[("t/list.csv", table.as_bytes())]);
        let own = config("csv = { table = 'other.csv', image = 'file', patient = 'mrn' }");
        let listing = listed(root, &["t/list.csv"], &own).expect("lists");
        assert_eq!(names(root, &listing), ["t/images/1.png", "t/images/2.png"]);
        let samples = listing.images.samples();
        assert_eq!(samples[0].patient, "7");
        assert_eq!(samples[1].patient, samples[1].path.display().to_string());
        assert_eq!((samples[1].line, &*samples[1].table), (3, &*root.join("t/list.csv")));
        let listing = listed(root, &["t/list.csv"], &config("")).expect("lists");
        assert_eq!(names(root, &listing), ["t/x.png", "t/y.png"]);
        write(root, &[("t/wrong.csv", b"image\n1.png\n")]);
        let error = listed(root, &["t/wrong.csv"], &config("")).expect_err("no such column");
        assert!(
            error.to_string().contains("the column `path` is missing (found: image)"),
            "{error}"
        );
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let error = listed(root, &["none.png"], &config("")).expect_err("is missing").to_string();
        assert!(error.starts_with("cannot read") && error.contains("none.png"), "{error}");
        write(root, &[("notes.txt", b"no image")]);
        let error = listed(root, &[""], &config("")).expect_err("is empty").to_string();
        assert!(error.contains("none of 1 files is PNG, JPEG, TIFF or DICOM"), "{error}");
        // Named itself it counts, and its prediction fails.
        let alone = listed(root, &["notes.md"], &config(""));
        assert!(alone.is_err());
        write(root, &[("notes.md", b"no image")]);
        assert_eq!(listed(root, &["notes.md"], &config("")).expect("lists").images.len(), 1);
    }
}
