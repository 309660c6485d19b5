//! Data that the run never saw, with names of their own.

use super::*;

/// A folder with a table of the phantom's training images, whose columns have other names.
pub struct Other {
    folder: tempfile::TempDir,
}

impl Other {
    /// `change` may change the rows (path, patient, Cardiomegaly, Support Devices, sex).
    pub fn new(trained: &Trained, change: impl Fn(&mut Vec<[String; 5]>)) -> Self {
        let folder = tempfile::tempdir().expect("is made");
        let data = trained.path("data");
        let mut reader = csv::Reader::from_path(data.join("train.csv")).expect("a table");
        let header = reader.headers().expect("a header").clone();
        let place = |name: &str| header.iter().position(|column| column == name).expect(name);
        let columns = ["Path", "Cardiomegaly", "Support Devices", "Sex"].map(place);
        let rows = reader.records().map(|record| {
            let record = record.expect("a row");
            let [path, heart, devices, sex] = columns.map(|at| record[at].to_owned());
            let below = path.split_once('/').map_or(path.as_str(), |(_, below)| below).to_owned();
            let found = [&path, &below].into_iter().find(|path| data.join(path).is_file());
            let found = found.expect("a file").clone();
            let patient =
                found.split('/').find(|part| part.starts_with("patient")).expect("is told");
            [found.clone(), patient.to_owned(), heart, devices, sex]
        });
        let mut rows: Vec<[String; 5]> = rows.collect();
        change(&mut rows);
        let lines = rows.iter().map(|row| format!("{}\n", row.join(",")));
        let table = format!("file,person,heart,devices,sex\n{}", lines.collect::<String>());
        fs::write(folder.path().join("other.csv"), table).expect("is written");
        let made = Self { folder };
        let config = format!(
            "[data.csv]\ntable = {:?}\nroot = {:?}\nimage = \"file\"\npatient = \"person\"\n",
            made.path("other.csv"),
            data
        );
        fs::write(made.path("other.toml"), config).expect("is written");
        made
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> String {
        self.path("other.toml").to_str().expect("UTF-8").to_owned()
    }
}

const MAP: [&str; 2] = ["--map", "Cardiomegaly=heart,Support Devices=devices"];

#[test]
fn the_same_images_under_other_names_have_the_same_figures() {
    let trained = Trained::runs();
    let other = Other::new(trained, |_| {});
    let config = other.config();
    let arguments = [&["--data", &config], &MAP[..], &["--by", "sex"]].concat();
    let (found, folder) = trained.evaluated("external", &arguments);
    let (own, _) = trained.evaluated("own", &["--split", "all", "--by", "sex"]);
    assert_eq!((&found["images"], &found["patients"]), (&own["images"], &own["patients"]));
    for metric in ["auroc", "auprc", "ece", "brier"] {
        for label in ["Cardiomegaly", "Support Devices"] {
            let of = |found: &Value| found["heads"]["findings"][metric]["labels"][label].clone();
            assert_eq!(of(&found), of(&own), "{metric} of {label}");
        }
    }
    let lacking = &found["heads"]["findings"]["auroc"]["labels"]["Pleural Effusion"];
    assert_eq!(
        (&lacking["value"], &lacking["undefined"]),
        (&Value::Null, &"no known label".into())
    );
    assert_eq!(found["heads"]["view"]["auroc"]["undefined"], "no known label");
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("the data have no label `Pleural Effusion`"), "{warnings}");
    assert!(warnings.contains("validation images of the run"), "{warnings}");
    assert!(warnings.contains("training images of the run"), "{warnings}");
    assert!(rows(&folder).iter().all(|row| row.labels()[1].truth.is_none()));
    let name = |groups: &Value| groups["subgroups"]["sex"][0]["group"].clone();
    assert_eq!(name(&found), name(&own));
}

#[test]
fn names_that_there_are_not_are_refused() {
    let trained = Trained::runs();
    let other = Other::new(trained, |_| {});
    let config = other.config();
    let eval = |map: &str| trained.refused(3, &["eval", "tiny", "--data", &config, "--map", map]);
    let told = eval("Cardiomegally=heart");
    assert!(told.contains("did you mean `Cardiomegaly`?"), "{told}");
    let told = trained.refused(2, &["eval", "tiny", "--data", &config, "--map", "heart"]);
    assert!(told.contains("OURS=THEIRS"), "{told}");
    let told = trained.refused(2, &["eval", "tiny", "--data", "nowhere.toml"]);
    assert!(told.contains("there is no file nowhere.toml"), "{told}");
    fs::write(other.path("wrong.toml"), "[data.csv]\ntabel = \"a\"\n").expect("is written");
    let wrong = other.path("wrong.toml");
    let told = trained.refused(2, &["eval", "tiny", "--data", wrong.to_str().expect("UTF-8")]);
    assert!(told.contains("wrong.toml:2:1") && told.contains("`tabel`"), "{told}");
}

#[test]
fn images_without_labels_are_for_predict() {
    let trained = Trained::runs();
    let other = Other::new(trained, |rows| {
        for row in rows {
            row[2].clear();
            row[3].clear();
        }
    });
    let arguments = ["eval", "tiny", "--data", &other.config()];
    let told = trained.refused(3, &[&arguments[..], &MAP[..]].concat());
    assert!(told.contains("no label is known") && told.contains("trainer predict"), "{told}");
}

#[test]
fn images_that_cannot_be_read_are_rows_where_they_may_be_skipped() {
    let trained = Trained::runs();
    let other = Other::new(trained, |rows| rows[1][0] = "bad.png".to_owned());
    fs::write(trained.path("data/bad.png"), "no image").expect("is written");
    let config = other.config();
    let arguments = [&["--data", &config], &MAP[..]].concat();
    let told = trained.refused(3, &[&["eval", "tiny"], &arguments[..]].concat());
    assert!(told.contains("bad.png") && told.contains("other.csv"), "{told}");
    let skip = [&arguments[..], &["--set", "data.on_bad_image=skip"]].concat();
    let (found, folder) = trained.evaluated("skipping", &skip);
    assert_eq!(found["skipped"], 1);
    let list = fs::read_to_string(folder.join("skipped_images.csv")).expect("is written");
    assert_eq!((list.lines().count(), list.contains("bad.png")), (2, true), "{list}");
    let limit = [&skip[..], &["--set", "data.bad_image_limit=0"]].concat();
    let told = trained.refused(3, &[&["eval", "tiny"], &limit[..]].concat());
    assert!(told.contains("bad_image_limit = 0"), "{told}");
}

/// The images of the run `tiny` in one of its lists, below its data.
fn images(trained: &Trained, list: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_path(trained.path("tiny/split.csv")).expect("a table");
    let rows = reader.records().map(|row| row.expect("a row"));
    rows.filter(|row| &row[2] == list).map(|row| row[0].to_owned()).collect()
}

#[test]
fn copies_of_images_that_the_run_has_seen_are_counted_and_named() {
    let trained = Trained::runs();
    let folder = tempfile::tempdir().expect("is made");
    let data = trained.path("data");
    let (train, validation) = (images(trained, "train"), images(trained, "validation"));
    // Two that were trained on and one of validation under other names; and one that is another file.
    let chosen = [&train[0], &train[1], &validation[0], &train[2]];
    let mut table = "path,heart\n".to_owned();
    for (place, image) in chosen.iter().enumerate() {
        let mut bytes = fs::read(data.join(image)).expect("reads");
        bytes.extend((place == 3).then_some(0));
        fs::write(folder.path().join(format!("copy{place}.png")), bytes).expect("is written");
        table += &format!("copy{place}.png,{}\n", place % 2);
    }
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (list, config) = (file("list.csv"), file("copies.toml"));
    fs::write(&list, table).expect("is written");
    let text = format!(
        "[data.csv]\ntable = {list:?}\nimage = \"path\"\ncolumns = {{ Cardiomegaly = \"heart\" }}\n"
    );
    fs::write(&config, text).expect("is written");
    let found = trained.json(&["eval", "tiny", "--data", &config, "--out", &file("out")]);
    let warnings = found["warnings"].as_array().expect("a list");
    let told = |whose: &str| {
        let of = warnings.iter().filter_map(Value::as_str).filter(|told| told.contains(whose));
        of.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let (seen, fitted) = (told("training images of the run"), told("validation images of the run"));
    assert!(seen.starts_with("2 images of these data are") && seen.contains("copy0.png"), "{seen}");
    assert!(seen.contains("copy1.png") && !seen.contains("copy3.png"), "{seen}");
    assert!(
        fitted.starts_with("1 image of these data is one of the") && fitted.contains("copy2.png"),
        "{fitted}"
    );
}
