//! MURA 1.1 (Rajpurkar et al. 2017, arXiv:1712.06957): radiographs of the upper limb, each study's
//! folder saying whether it is abnormal.

use std::collections::BTreeMap;
use std::path::Path;

use super::check::{check_choice, check_root};
use super::sheet::{Fields, Sheet, expected_folder};
use super::{Column, Kind, Layout, List, Lists, Row, Vocabulary};
use crate::data::config::{MuraConfig, MuraPart, Uncertain};
use crate::data::error::DataError;
use crate::fault::Fault;
use crate::model::HeadConfig;

/// The folders of body parts.
const PARTS: [(&str, MuraPart); 7] = [
    ("XR_ELBOW", MuraPart::Elbow),
    ("XR_FINGER", MuraPart::Finger),
    ("XR_FOREARM", MuraPart::Forearm),
    ("XR_HAND", MuraPart::Hand),
    ("XR_HUMERUS", MuraPart::Humerus),
    ("XR_SHOULDER", MuraPart::Shoulder),
    ("XR_WRIST", MuraPart::Wrist),
];

/// What the tables, which have no header, have in their only column.
const PATH: &str = "path";
const TRAIN: &str = "train_image_paths.csv";
const VALID: &str = "valid_image_paths.csv";

const EXPECTED: &str = "expected a folder in MURA's layout: `train_image_paths.csv`, \
    `valid_image_paths.csv`, `train/` and `valid/`";
const EXPECTED_PATH: &str =
    "a path such as MURA-v1.1/train/XR_WRIST/patient00001/study1_positive/image1.png";

/// Whether MURA's table of training images is in `root`.
pub(super) fn is_in(root: &Path) -> bool {
    root.join(TRAIN).is_file()
}

impl Layout for MuraConfig {
    /// Whether the study is abnormal, for all parts and for each alone, and the part.
    fn vocabulary(&self, _heads: &[HeadConfig]) -> Vocabulary {
        let abnormal = |label: &str| Column::new(label, &[PATH], Kind::Finding);
        let mut columns = vec![abnormal("Abnormal")];
        columns.extend(PARTS.map(|(part, _)| abnormal(&format!("Abnormal {part}"))));
        columns.push(Column::classes("part", &[PATH], &PARTS.map(|(part, _)| part)));
        Vocabulary::of(columns)
    }

    fn configured_root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn lists(&self) -> &[List] {
        &[List::Train, List::Validation]
    }

    fn read(
        &self,
        _vocabulary: &Vocabulary,
        _needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        let mut lists = BTreeMap::new();
        for (list, name) in [(List::Train, TRAIN), (List::Validation, VALID)] {
            if !wanted.contains(&list) {
                continue;
            }
            let table = self.root.join(name);
            let sheet =
                Sheet::open_bare(&table, PATH, || expected_folder(&self.root, EXPECTED, TRAIN))?;
            let mut rows = Lists::new(&[list]);
            sheet.rows(|fields| {
                if let Some(row) = self.read_row(fields)? {
                    rows.add(list, row);
                }
                Ok(())
            })?;
            lists.extend(rows.done(&table, "has one of the `parts`")?);
        }
        Ok(lists)
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        None
    }

    fn check(&self) -> Result<(), Fault> {
        check_root(&self.root)?;
        let offered = PARTS.map(|(part, _)| format!("{part:?}")).join(", ");
        check_choice("parts", "part", self.parts.as_deref(), &offered)
    }
}

impl MuraConfig {
    /// An image; none of another part than those chosen.
    fn read_row(&self, fields: &Fields) -> Result<Option<Row>, DataError> {
        let path = fields.at(Some(0));
        let Some(Study { place, part, patient, abnormal }) = Study::of(path) else {
            return Err(fields.bad(PATH, path, EXPECTED_PATH));
        };
        if self.parts.as_ref().is_some_and(|parts| !parts.contains(&PARTS[part].1)) {
            return Ok(None);
        }
        let label = f32::from(u8::from(abnormal));
        let mut values = vec![f32::NAN; 1 + PARTS.len()];
        values[0] = label;
        values[1 + part] = label;
        values.push(part as f32);
        // The tables' paths start above the root, at `MURA-v1.1`.
        Ok(Some(fields.row(self.root.join(place), patient, values)))
    }
}

/// What an image's path says.
struct Study<'a> {
    /// The path from `train` or `valid` on.
    place: &'a str,
    part: usize,
    patient: &'a str,
    abnormal: bool,
}

impl<'a> Study<'a> {
    fn of(path: &'a str) -> Option<Self> {
        // `train/XR_WRIST/patient00001/study1_positive/image1.png`, whatever stands before it.
        let place = path.rmatch_indices('/').nth(4).map_or(path, |(slash, _)| &path[slash + 1..]);
        let names: Vec<&str> = place.split('/').collect();
        let [_list, part, patient, study, _image] = names[..] else { return None };
        let part = PARTS.iter().position(|(name, _)| *name == part)?;
        let number = patient.strip_prefix("patient")?;
        let abnormal = match study.rsplit_once('_')? {
            (_, "positive") => true,
            (_, "negative") => false,
            _ => return None,
        };
        let valid = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        valid.then_some(Self { place, part, patient, abnormal })
    }
}
