//! `skipped_images.csv`: the images that could not be read, each once.
//!
//! An image is met again in every epoch and after resuming, so the file is read back when opened.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::append::Appended;
use super::{Event, Report, ReportError};
use crate::data::BadImage;

const HEADER: [&str; 4] = ["path", "table", "line", "reason"];

/// Lists images left out, in a file made for the first of them.
#[derive(Debug)]
pub struct SkippedImages {
    path: PathBuf,
    file: Option<Appended>,
    /// Path, table and line, as written.
    listed: HashSet<[String; 3]>,
}

impl SkippedImages {
    /// Goes on with the list at `path`, or starts one there for the first image.
    ///
    /// # Errors
    ///
    /// When a file is there and cannot be read or holds something else.
    pub fn open(path: &Path) -> Result<Self, ReportError> {
        let mut before = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(ReportError::at("read", path)),
        }?;
        // A row is one line, so what follows the last line end was torn by a kill.
        before.truncate(before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        if before.is_empty() {
            return Ok(Self { path: path.to_owned(), file: None, listed: HashSet::new() });
        }
        let listed = listed(&before).map_err(ReportError::at("read", path))?;
        let file = Appended::cut(path, before.len() as u64);
        let file = file.map_err(ReportError::at("cut back", path))?;
        Ok(Self { path: path.to_owned(), file: Some(file), listed })
    }

    fn append(&mut self, images: &[BadImage]) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        if self.file.as_ref().is_none_or(|file| file.length() == 0) {
            writer.write_record(HEADER)?;
        }
        let mut new = Vec::new();
        for image in images {
            let row = row(image);
            let [path, table, line, _] = row.clone();
            let key = [path, table, line];
            if !self.listed.contains(&key) && !new.contains(&key) {
                writer.write_record(&row)?;
                new.push(key);
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let rows = writer.into_inner().map_err(|error| error.into_error())?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Appended::cut(&self.path, 0)?),
        };
        file.append(&rows)?;
        self.listed.extend(new);
        Ok(())
    }
}

impl Report for SkippedImages {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        let Event::SkippedImages { images } = event else { return Ok(()) };
        self.append(images).map_err(ReportError::at("append to", &self.path))
    }
}

/// One line of the file, whatever the names and messages hold.
fn row(image: &BadImage) -> [String; 4] {
    let BadImage { path, table, line, reason } = image;
    let (path, table) = (path.display().to_string(), table.display().to_string());
    [path, table, line.to_string(), reason.clone()]
        .map(|field| field.replace('\r', "\\r").replace('\n', "\\n"))
}

fn listed(bytes: &[u8]) -> io::Result<HashSet<[String; 3]>> {
    let mut reader = csv::Reader::from_reader(bytes);
    if reader.headers()?.iter().ne(HEADER) {
        let message = format!("its first line is not {}", HEADER.join(","));
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let key = |row: csv::StringRecord| [0, 1, 2].map(|field| row[field].to_owned());
    Ok(reader.into_records().map(|row| row.map(key)).collect::<Result<_, _>>()?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::examples::bad_image;
    use super::*;

    fn skip(list: &mut SkippedImages, images: &[BadImage]) {
        list.event(&Event::SkippedImages { images: images.to_vec() }).unwrap();
    }

    #[test]
    fn an_image_is_listed_once_however_often_it_is_met() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skipped_images.csv");
        let mut list = SkippedImages::open(&path).unwrap();
        assert!(!path.exists(), "no file while nothing is skipped");
        skip(&mut list, &[bad_image(1), bad_image(2), bad_image(1)]);
        skip(&mut list, &[bad_image(2)]);
        let mut resumed = SkippedImages::open(&path).unwrap();
        skip(&mut resumed, &[bad_image(1), bad_image(3)]);
        insta::assert_snapshot!(fs::read_to_string(&path).unwrap(), @r#"
        path,table,line,reason
        data/patient1.png,data/train.csv,2,"not a PNG, ""JPEG"" or other image"
        data/patient2.png,data/train.csv,3,"not a PNG, ""JPEG"" or other image"
        data/patient3.png,data/train.csv,4,"not a PNG, ""JPEG"" or other image"
        "#);
    }

    #[test]
    fn a_torn_last_line_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skipped_images.csv");
        let mut awkward = bad_image(2);
        awkward.reason = "two\nlines, \"quoted\"\r\n".to_owned();
        let images = [bad_image(1), awkward];
        skip(&mut SkippedImages::open(&path).unwrap(), &images);
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            skip(&mut SkippedImages::open(&path).unwrap(), &images);
            assert_eq!(fs::read(&path).unwrap(), whole, "killed after {length} bytes");
        }
    }

    #[test]
    fn another_file_in_its_place_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skipped_images.csv");
        fs::write(&path, "a,b\n1,2\n").unwrap();
        let error = SkippedImages::open(&path).unwrap_err();
        assert!(error.to_string().ends_with("correct the file, or move it away"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a,b\n1,2\n");
    }
}
