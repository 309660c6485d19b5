//! Every published layout on its example in `tests/fixtures/layouts`: as pandas reads it, and what
//! is said of wrong tables.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::data::config::DataConfig;
use crate::data::{Splits, check_layouts, open, open_with_test};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts")
}

fn config(root: &Path, layout: &str, settings: &str, data: &str) -> DataConfig {
    let text =
        format!("image = {{ size = [32, 32] }}\n{data}\n[{layout}]\nroot = {root:?}\n{settings}");
    toml::from_str(&text).expect("reads")
}

fn head(task: &str, labels: &[&str]) -> HeadConfig {
    toml::from_str(&format!("name = 'h'\ntask = '{task}'\nlabels = {labels:?}")).expect("reads")
}

/// Compares every list of a layout with what pandas made of the same tables.
fn assert_as_pandas(case: &str, folder: &str, layout: &str, settings: &str) {
    let text = fs::read_to_string(examples().join("expected.json")).expect("is there");
    let expected: Value = serde_json::from_str(&text).expect("is JSON");
    let root = examples().join(folder);
    let config = config(&root, layout, settings, "");
    let layouts = config.layout.given();
    let layout = layouts[0].1;
    let vocabulary = layout.vocabulary(&[]);
    let needed: Vec<usize> = (0..vocabulary.columns.len()).collect();
    let lists = layout.read(&vocabulary, &needed, layout.lists()).expect("reads");
    let names = |list: List| if list == List::Train { "train" } else { list.name() };
    let found: Vec<&str> = lists.keys().map(|list| names(*list)).collect();
    let mut wanted: Vec<&str> =
        expected[case].as_object().expect("is a table").keys().map(String::as_str).collect();
    wanted.sort_by_key(|name| ["train", "validation", "test"].iter().position(|n| n == name));
    assert_eq!(found, wanted, "{case}");
    for (list, rows) in &lists {
        let expected = expected[case][names(*list)].as_array().expect("is a list");
        assert_eq!(rows.len(), expected.len(), "{case}");
        for (row, expected) in rows.iter().zip(expected) {
            assert_eq!(row.path, root.join(expected["path"].as_str().expect("a path")), "{case}");
            assert!(row.path.is_file(), "{case}: {:?}", row.path);
            assert_eq!(row.patient, expected["patient"].as_str().expect("a patient"), "{case}");
            assert_labels(case, &vocabulary, row, expected["labels"].as_object().expect("labels"));
        }
    }
}

fn assert_labels(
    case: &str,
    vocabulary: &Vocabulary,
    row: &Row,
    expected: &serde_json::Map<String, Value>,
) {
    let known = |label: &String| vocabulary.columns.iter().any(|column| column.label == *label);
    assert!(expected.keys().all(known), "{case}: {expected:?}");
    assert_eq!(row.values.len(), vocabulary.columns.len(), "{case}");
    for (column, value) in vocabulary.columns.iter().zip(&row.values) {
        let place = format!("{case}: {:?}, {}", row.path, column.label);
        let expected = expected.get(&column.label);
        match &column.kind {
            Kind::Classes(classes) => {
                let class = (!value.is_nan()).then(|| classes[*value as usize].as_str());
                assert_eq!(class, expected.and_then(Value::as_str), "{place}");
            }
            _ => match expected {
                Some(Value::Null) => assert!(value.is_nan(), "{place}: {value}"),
                Some(number) => {
                    assert_eq!(
                        Some(*value),
                        number.as_f64().map(|number| number as f32),
                        "{place}"
                    );
                }
                None => assert_eq!(*value, 0.0, "{place}"),
            },
        }
    }
}

#[test]
fn every_layout_reads_what_pandas_reads() {
    assert_as_pandas("chexpert", "chexpert", "chexpert", "");
    assert_as_pandas("mimic", "mimic", "mimic", "");
    assert_as_pandas("mimic negbio", "mimic", "mimic", "labeler = 'negbio'");
    assert_as_pandas("nih", "nih", "nih", "");
    assert_as_pandas("nih 2017", "nih_2017", "nih", "");
    assert_as_pandas("padchest", "padchest", "padchest", "");
    assert_as_pandas("padchest physicians", "padchest", "padchest", "physicians_only = true");
    assert_as_pandas("vindr", "vindr", "vindr", "");
    assert_as_pandas("vindr any", "vindr", "vindr", "agreement = 'any'");
    assert_as_pandas("vindr all", "vindr", "vindr", "agreement = 'all'");
    assert_as_pandas("vindr share", "vindr", "vindr", "agreement = 'share'");
    assert_as_pandas("mura", "mura", "mura", "");
}

#[test]
fn the_page_on_data_lists_every_label() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/README.md");
    let page = fs::read_to_string(page).expect("is there");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for name in ["chexpert", "mimic", "nih", "padchest", "vindr", "mura"] {
        assert!(page.contains(&format!("`[data.{name}]`")), "{name}");
        let config = config(Path::new("x"), name, "", "");
        for column in config.layout.given()[0].1.vocabulary(&[]).columns {
            let names = match column.kind {
                Kind::Classes(classes) => classes,
                _ => vec![column.label],
            };
            for label in names {
                assert!(page.contains(&format!("`{label}`")), "{name}: {label}");
            }
        }
    }
}

#[test]
fn rows_are_blamed_by_their_line_in_the_file() {
    let lines = |layout: &str| -> Vec<u64> {
        let config =
            config(&examples().join(layout), layout, "", "validation = { fraction = 0.5 }");
        let label = if layout == "padchest" { "scoliosis" } else { "Abnormal" };
        let heads = [head("multilabel", &[label])];
        let splits = open(&config, &heads, 1, crate::data::untold).expect("opens");
        let both = splits.train.samples().iter().chain(splits.validation.samples());
        let mut lines: Vec<u64> = both.map(|sample| sample.line).collect();
        lines.sort_unstable();
        lines
    };
    // The last report of the example has two lines.
    assert_eq!(lines("padchest"), [2, 3, 4, 5, 6, 7, 8]);
    // No header.
    assert_eq!(lines("mura"), [1, 2, 3, 4, 5, 6]);
}

fn opened(root: &Path, layout: &str, settings: &str, data: &str) -> Result<Splits, DataError> {
    let label = match layout {
        "padchest" => "pleural effusion",
        "vindr" => "Cardiomegaly",
        "mura" => "Abnormal",
        _ => "Edema",
    };
    let config = config(root, layout, settings, data);
    open_with_test(&config, &[head("multilabel", &[label])], 1, crate::data::untold)
}

#[test]
fn views_and_parts_leave_only_their_images() {
    let images = |layout: &str, settings: &str, data: &str| -> Vec<String> {
        let config = config(&examples().join(layout), layout, settings, data);
        let label = if layout == "mura" { "Abnormal" } else { "No Finding" };
        let label = if layout == "padchest" { "normal" } else { label };
        let heads = [head("multilabel", &[label])];
        let splits = open(&config, &heads, 1, crate::data::untold).expect("opens");
        let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
        splits.train.samples().iter().map(|sample| name(&sample.path)).collect()
    };
    let rest = images("mimic", "views = ['AP', 'Lateral']", "validation = { list = 'validation' }");
    assert_eq!(rest, ["174413ec-4ec4c1f7.jpg", "096052b7-d256dc40.jpg", "2a280266-c8bae121.jpg"]);
    let pa = images("nih", "views = ['PA']", "validation = { list = 'test' }");
    assert_eq!(pa, ["00000001_000.png", "00000001_001.png", "00000002_000.png"]);
    let settings = "views = ['L', 'COSTAL', 'AP_horizontal']\nphysicians_only = true";
    let root = examples().join("padchest");
    let error = opened(&root, "padchest", "views = ['EXCLUDE']", "").expect_err("is refused");
    assert!(error.to_string().contains("is chosen by `views`"), "{error}");
    let both = images("padchest", settings, "validation = { fraction = 0.5 }");
    assert!(both == ["1001_a-101.png"] || both == ["1005_a-100.png"], "{both:?}");
    let wrists = images("mura", "parts = ['XR_WRIST']", "");
    assert_eq!(wrists.len(), 2);
}

#[test]
fn official_lists_are_used_as_they_stand() {
    let counts = |layout: &str, data: &str| {
        let splits = opened(&examples().join(layout), layout, "", data).expect("opens");
        (splits.train.len(), splits.validation.len(), splits.test.map(|test| test.len()))
    };
    assert_eq!(counts("mimic", ""), (6, 1, Some(1)));
    assert_eq!(counts("mimic", "validation = { list = 'test' }"), (6, 1, Some(1)));
    assert_eq!(counts("chexpert", ""), (5, 2, None));
    assert_eq!(counts("mura", ""), (6, 3, None));
    assert_eq!(counts("nih", "validation = { list = 'test' }"), (6, 2, Some(2)));
    // A share is of the training list alone: five patients, six images.
    let (train, validation, test) = counts("nih", "validation = { fraction = 0.4 }");
    assert_eq!((train + validation, test), (6, Some(2)));
    assert_eq!(counts("vindr", "validation = { fraction = 0.4 }"), (3, 2, Some(2)));
}

/// Opens an example in which `old` is `new` in one of its tables; the message and the help, the
/// temporary folder taken out.
fn said(layout: &str, settings: &str, table: &str, old: &str, new: &str) -> String {
    let folder = tempfile::tempdir().expect("is made");
    let root = folder.path().join("root");
    copy_tables(&examples().join(layout), &root);
    let packed = root.join(table);
    let plain = packed.with_extension(if table.ends_with(".gz") { "" } else { "csv" });
    let plain = if table.ends_with(".txt") { packed.clone() } else { plain };
    let text = unpacked(&packed);
    fs::remove_file(&packed).expect("is removed");
    if !old.is_empty() {
        assert!(text.contains(old), "{old:?} stands in {text}");
        fs::write(plain, text.replacen(old, new, 1)).expect("is written");
    }
    let data = match layout {
        "nih" | "vindr" => "validation = { list = 'test' }",
        "padchest" => "validation = { fraction = 0.4 }",
        _ => "",
    };
    let error = opened(&root, layout, settings, data).expect_err("is refused");
    let text = match error.help() {
        Some(help) => format!("{error}\n{help}"),
        None => error.to_string(),
    };
    text.replace(&format!("{}/", folder.path().display()), "")
}

fn copy_tables(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("is made");
    for entry in fs::read_dir(from).expect("is there").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let image = |end: &str| path.extension().is_some_and(|extension| extension == end);
        if path.is_dir() {
            copy_tables(&path, &to.join(name));
        } else if !["png", "jpg", "dicom"].iter().any(|end| image(end)) {
            fs::copy(&path, to.join(name)).expect("is copied");
        }
    }
}

fn unpacked(path: &Path) -> String {
    let file = fs::File::open(path).expect("is there");
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("unpacks");
    } else {
        std::io::BufReader::new(file).read_to_string(&mut text).expect("is text");
    }
    text
}

#[test]
fn wrong_tables_of_mimic_are_named() {
    let of = |table: &str, old: &str, new: &str| {
        said("mimic", "", &format!("mimic-cxr-2.0.0-{table}.csv.gz"), old, new)
    };
    insta::assert_snapshot!(of("metadata", "ViewPosition", "View"), @r"
    `root/mimic-cxr-2.0.0-metadata.csv`, line 1: the column `ViewPosition` is missing (found: dicom_id, subject_id, study_id, PerformedProcedureStepDescription, View, Rows, Columns, StudyDate, StudyTime, ProcedureCodeSequence_CodeMeaning, ViewCodeSequence_CodeMeaning, PatientOrientationCodeSequence_CodeMeaning)
    the first line of the table must name the columns as MIMIC-CXR-JPG does: dicom_id, subject_id, study_id, ViewPosition and others
    ");
    insta::assert_snapshot!(of("chexpert", "Edema", "Oedema"), @r"
    `root/mimic-cxr-2.0.0-chexpert.csv`, line 1: the column `Edema` is missing (found: subject_id, study_id, Atelectasis, Cardiomegaly, Consolidation, Oedema, Enlarged Cardiomediastinum, Fracture, Lung Lesion, Lung Opacity, No Finding, Pleural Effusion, Pleural Other, Pneumonia, Pneumothorax, Support Devices)
    the first line of the table must name the columns as MIMIC-CXR-JPG does: subject_id, study_id and the findings
    ");
    insta::assert_snapshot!(of("chexpert", ",1.0", ",2.0"), @"`root/mimic-cxr-2.0.0-chexpert.csv`, line 2, column `No Finding`: `2.0` is not 1 (positive), 0 (negative), -1 (uncertain) or nothing");
    insta::assert_snapshot!(of("chexpert", "10000764,57375967", "10000764,50414267"), @"`root/mimic-cxr-2.0.0-chexpert.csv`, line 4: the study `50414267` stands in the table twice");
    insta::assert_snapshot!(of("split", "c0ffee00-00000001", "c0ffee00-00000002"), @"`root/mimic-cxr-2.0.0-metadata.csv.gz`, line 9, column `dicom_id`: `c0ffee00-00000001` is not an image that the table of splits names");
    insta::assert_snapshot!(of("split", "validate", "dev"), @"`root/mimic-cxr-2.0.0-split.csv`, line 8, column `split`: `dev` is not train, validate or test");
    insta::assert_snapshot!(of("metadata", ",LL,", ",SIDE,"), @"`root/mimic-cxr-2.0.0-metadata.csv`, line 5, column `ViewPosition`: `SIDE` is not a view such as PA, AP, LATERAL or LL, or nothing");
    insta::assert_snapshot!(of("metadata", "12000012,52000001", "10000764,52000001"), @r"
    patient `10000764` is in the training and in the test list: `root/mimic-cxr-2.0.0-metadata.csv`, line 5, and `root/mimic-cxr-2.0.0-metadata.csv`, line 9
    take the patient out of one list
    ");
    insta::assert_snapshot!(of("split", "", ""), @r"
    there is no `root/mimic-cxr-2.0.0-split.csv.gz`
    expected a folder in MIMIC-CXR-JPG's layout: `files/` and the tables `mimic-cxr-2.0.0-metadata.csv.gz`, `mimic-cxr-2.0.0-split.csv.gz` and `mimic-cxr-2.0.0-chexpert.csv.gz`, packed or not; the folder holds files, mimic-cxr-2.0.0-chexpert.csv.gz, mimic-cxr-2.0.0-metadata.csv.gz, mimic-cxr-2.0.0-negbio.csv.gz
    ");
    insta::assert_snapshot!(said("mimic", "views = ['PA']", "mimic-cxr-2.0.0-split.csv.gz", "split", "split"), @"`root/mimic-cxr-2.0.0-metadata.csv.gz` leaves no image: no row of the validation list has one of the `views`");
}

#[test]
fn wrong_tables_of_the_nih_are_named() {
    let table = "Data_Entry_2017_v2020.csv";
    insta::assert_snapshot!(said("nih", "", table, "Finding Labels", "Labels"), @r"
    `root/Data_Entry_2017_v2020.csv`, line 1: the column `Finding Labels` is missing (found: Image Index, Labels, Follow-up #, Patient ID, Patient Age, Patient Gender, View Position, OriginalImage[Width, Height], OriginalImagePixelSpacing[x, y])
    the first line of the table must name the columns as the NIH does: Image Index, Finding Labels, Follow-up #, Patient ID, Patient Age, Patient Gender, View Position and others
    ");
    insta::assert_snapshot!(said("nih", "", table, "Emphysema", "Emfysema"), @"`root/Data_Entry_2017_v2020.csv`, line 3, column `Finding Labels`: `Emfysema` is not a finding of NIH ChestX-ray14, several joined by |; did you mean `Emphysema`?");
    insta::assert_snapshot!(said("nih", "", table, ",58,", ",old,"), @"`root/Data_Entry_2017_v2020.csv`, line 2, column `Patient Age`: `old` is not an age such as 58, 058Y, 011M or 012D");
    insta::assert_snapshot!(said("nih", "", table, ",PA,", ",LL,"), @"`root/Data_Entry_2017_v2020.csv`, line 2, column `View Position`: `LL` is not PA, AP or nothing");
    insta::assert_snapshot!(said("nih", "", table, "0,6,61", "0,5,61"), @r"
    patient `5` is in the training and in the test list: `root/Data_Entry_2017_v2020.csv`, line 7, and `root/Data_Entry_2017_v2020.csv`, line 8
    take the patient out of one list
    ");
    insta::assert_snapshot!(said("nih", "", table, "00000002_000.png", "00000001_000.png"), @"`root/Data_Entry_2017_v2020.csv`, line 4: the image `00000001_000.png` stands in the table twice");
    insta::assert_snapshot!(said("nih", "", "test_list.txt", "00000006_000.png", "00000001_000.png"), @"`root/test_list.txt`, line 1: `00000001_000.png` stands in `root/train_val_list.txt`, line 1, too");
    insta::assert_snapshot!(said("nih", "", "test_list.txt", "00000006_000.png", "00000009_000.png"), @"`root/test_list.txt`, line 1: `00000009_000.png` is not in `root/Data_Entry_2017_v2020.csv`");
    insta::assert_snapshot!(said("nih", "", "train_val_list.txt", "", ""), @r"
    there is no `root/train_val_list.txt`
    expected a folder in NIH ChestX-ray14's layout: `Data_Entry_2017_v2020.csv` (or `Data_Entry_2017.csv`), `train_val_list.txt`, `test_list.txt`, and `images/` or `images_001/images/` and so on; the folder holds Data_Entry_2017_v2020.csv, images, test_list.txt
    ");
}

#[test]
fn wrong_tables_of_padchest_are_named() {
    let of = |old: &str, new: &str| {
        said("padchest", "", "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv.gz", old, new)
    };
    insta::assert_snapshot!(of(",PatientID,", ",Patient,"), @r"
    `root/PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`, line 1: the column `PatientID` is missing (found: , ImageID, ImageDir, StudyDate_DICOM, StudyID, Patient, PatientBirth, PatientSex_DICOM, ViewPosition_DICOM, Projection, MethodProjection, Pediatric, ReportID, Report, MethodLabel, Labels, Localizations, LabelsLocalizationsBySentence)
    the first line of the table must name the columns as PadChest does: ImageID, ImageDir, StudyDate_DICOM, PatientID, PatientBirth, PatientSex_DICOM, Projection, MethodLabel, Labels and others
    ");
    insta::assert_snapshot!(of("kerley lines", "curly lines"), @"`root/PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`, line 5, column `Labels`: `curly lines` is not one of PadChest's labels");
    insta::assert_snapshot!(of("['exclude']", "exclude"), @"`root/PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`, line 6, column `Labels`: `exclude` is not a list such as ['normal', 'scoliosis']");
    insta::assert_snapshot!(of("AP_horizontal", "supine"), @"`root/PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`, line 4, column `Projection`: `supine` is not PA, L, AP, AP_horizontal, COSTAL, EXCLUDE or nothing");
    insta::assert_snapshot!(of("1927.0", "27"), @"`root/PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`, line 5, column `PatientBirth`: `27` is not the year of a birth");
    insta::assert_snapshot!(of("", ""), @r"
    there is no `root/PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`
    expected a folder in PadChest's layout: `PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`, packed or not, and the images, directly or in folders `0` to `54`; the folder holds 0, 1
    ");
}

#[test]
fn wrong_tables_of_vindr_are_named() {
    let of = |list: &str, old: &str, new: &str| {
        said("vindr", "", &format!("annotations/image_labels_{list}.csv"), old, new)
    };
    insta::assert_snapshot!(of("train", "Cardiomegaly", "Big heart"), @r"
    `root/annotations/image_labels_train.csv`, line 1: the column `Cardiomegaly` is missing (found: image_id, rad_id, Aortic enlargement, Atelectasis, Calcification, Big heart, Clavicle fracture, Consolidation, Edema, Emphysema, Enlarged PA, ILD, Infiltration, Lung Opacity, Lung cavity, Lung cyst, Mediastinal shift, Nodule/Mass, Pleural effusion, Pleural thickening, Pneumothorax, Pulmonary fibrosis, Rib fracture, Other lesion, COPD, Lung tumor, Pneumonia, Tuberculosis, Other diseases, No finding)
    the first line of the table must name the columns as VinDr-CXR does: image_id, rad_id (training only) and the findings
    ");
    insta::assert_snapshot!(of("train", ",R10,0", ",R8,0"), @"`root/annotations/image_labels_train.csv`, line 3: the image `000434271f63a053c4128a0ba6352c7f` by `R8` stands in the table twice");
    insta::assert_snapshot!(of("train", ",R10,0", ",R10,2"), @"`root/annotations/image_labels_train.csv`, line 3, column `Aortic enlargement`: `2` is not 1, 0 or nothing");
    insta::assert_snapshot!(of("test", "002a34c58c5b758217ed1f584ccbcfe9", "0006e0a85696f6bb578e84fafa9a5607"), @r"
    patient `0006e0a85696f6bb578e84fafa9a5607` is in the training and in the test list: `root/annotations/image_labels_train.csv`, line 7, and `root/annotations/image_labels_test.csv`, line 2
    take the patient out of one list
    ");
    insta::assert_snapshot!(of("train", "", ""), @r"
    there is no `root/annotations/image_labels_train.csv`
    expected a folder in VinDr-CXR's layout: `annotations/image_labels_train.csv`, `annotations/image_labels_test.csv`, `train/` and `test/`; the folder holds annotations, test, train
    ");
}

#[test]
fn wrong_tables_of_mura_are_named() {
    let of = |list: &str, old: &str, new: &str| {
        said("mura", "", &format!("{list}_image_paths.csv"), old, new)
    };
    insta::assert_snapshot!(of("train", "study1_positive", "study1"), @"`root/train_image_paths.csv`, line 1, column `path`: `MURA-v1.1/train/XR_SHOULDER/patient00001/study1/image1.png` is not a path such as MURA-v1.1/train/XR_WRIST/patient00001/study1_positive/image1.png");
    insta::assert_snapshot!(of("train", "XR_HAND", "XR_KNEE"), @"`root/train_image_paths.csv`, line 6, column `path`: `MURA-v1.1/train/XR_KNEE/patient00003/study1_negative/image1.png` is not a path such as MURA-v1.1/train/XR_WRIST/patient00001/study1_positive/image1.png");
    insta::assert_snapshot!(of("train", "image1.png", "image1.png,1"), @"`root/train_image_paths.csv`, line 1: the row has 2 columns, not 1");
    insta::assert_snapshot!(of("valid", "patient11186", "patient00003"), @r"
    patient `patient00003` is in the training and in the validation list: `root/train_image_paths.csv`, line 5, and `root/valid_image_paths.csv`, line 2
    take the patient out of one list, or set `data.validation.fraction` to split the training list by patient
    ");
    insta::assert_snapshot!(of("train", "", ""), @r"
    there is no `root/train_image_paths.csv`
    expected a folder in MURA's layout: `train_image_paths.csv`, `valid_image_paths.csv`, `train/` and `valid/`; the folder holds train, valid, valid_image_paths.csv
    ");
}

#[test]
fn wrong_settings_of_the_layouts_are_named() {
    let fault = |layout: &str, settings: &str, data: &str| {
        let fault =
            check_layouts(&config(Path::new("x"), layout, settings, data)).expect_err("is refused");
        let also: String = fault.also.iter().map(|also| format!(" and {also}")).collect();
        format!("{}{also}: {}\n{}", fault.key, fault.message, fault.help.unwrap_or_default())
    };
    insta::assert_snapshot!(fault("nih", "views = ['PA', 'Lateral']", ""), @r#"
    data.nih.views[1]: NIH ChestX-ray14 has no lateral images
    write "PA", "AP" or both
    "#);
    insta::assert_snapshot!(fault("padchest", "views = []", ""), @r#"
    data.padchest.views: `views` is empty, so no image is left
    write some of "PA", "L", "AP", "AP_horizontal", "COSTAL", "EXCLUDE", or leave `views` out for all
    "#);
    insta::assert_snapshot!(fault("mura", "parts = ['XR_HAND', 'XR_HAND']", ""), @r#"
    data.mura.parts[1]: this part is given twice
    remove one
    "#);
    insta::assert_snapshot!(fault("nih", "", "validation = { list = 'validation' }"), @r#"
    data.validation.list: `[data.nih]` has no validation list
    write "test", or set `fraction` in place of `list`
    "#);
    insta::assert_snapshot!(fault("padchest", "", "validation = { list = 'test' }"), @r#"
    data.validation.list: `[data.padchest]` has no test list
    set `fraction` in place of `list`
    "#);
    insta::assert_snapshot!(fault("nih", "", "validation = { list = 'test', fraction = 0.1 }"), @r#"
    data.validation.list and data.validation.fraction: either a share of the patients or a list is validated on, not both
    remove `fraction` or `list`
    "#);
    insta::assert_snapshot!(fault("mimic", "[chexpert]\nroot = 'y'", ""), @r#"
    data.mimic and data.chexpert: two data sets are given: `[data.chexpert]` and `[data.mimic]`
    remove one of the two tables, or give each its own `[[data.sources]]`
    "#);
    insta::assert_snapshot!(fault("mimic", "[[sources]]\nchexpert = { root = 'y' }", ""), @r#"
    data.mimic and data.sources: a data set is given beside `[[data.sources]]`: `[data.mimic]`
    write it as one of them: `[[data.sources]]` and below it `[data.sources.mimic]`
    "#);
}

#[test]
fn empty_lines_and_windows_line_ends_change_no_line_number() {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("table.csv");
    let text = "\u{feff} Name ,Text\r\n\r\na ,\"two\r\nlines\"\r\n\n\nb,c";
    fs::write(&path, text).expect("is written");
    let sheet = sheet::Sheet::open(&path, String::new).expect("opens");
    let (name, text) = (sheet.place("Name"), sheet.place("Text"));
    let mut rows = Vec::new();
    let take = |fields: &sheet::Fields| {
        rows.push((fields.line, fields.at(name).to_owned(), fields.at(text).to_owned()));
        Ok(())
    };
    sheet.rows(take).expect("reads");
    let row = |line, name: &str, text: &str| (line, name.to_owned(), text.to_owned());
    assert_eq!(rows, [row(3, "a", "two\nlines"), row(7, "b", "c")]);
}

#[test]
fn a_row_without_an_end_is_refused_before_it_fills_the_memory() {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("train_image_paths.csv.gz");
    let file = fs::File::create(&path).expect("is made");
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    std::io::copy(&mut std::io::repeat(b'x').take(64 << 20), &mut packed).expect("is written");
    packed.finish().expect("is written");
    let sheet = sheet::Sheet::open(&path, String::new).map(|_| ());
    let error = sheet.expect_err("is refused").to_string();
    assert!(error.contains("a row is longer than 16 MiB"), "{error}");
}
