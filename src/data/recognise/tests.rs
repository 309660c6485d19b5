use std::fs;

use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("is below")).expect("is made");
        fs::write(path, text).expect("is written");
    }
    folder
}

fn table(files: &[(&str, &str)]) -> (FoundTable, Vec<Offer>) {
    let folder = folder(files);
    match recognise(folder.path()) {
        Ok((Found::Table(mut table), offers)) => {
            let below = |path: &Path| path.strip_prefix(folder.path()).expect("below").to_owned();
            table.table = below(&table.table);
            table.first = below(&table.first);
            table.root = table.root.as_deref().map(below);
            (table, offers)
        }
        other => panic!("{other:?}"),
    }
}

fn named<'a>(offers: &'a [Offer], name: &str) -> &'a OfferValues {
    &offers.iter().find(|offer| offer.name == name).unwrap_or_else(|| panic!("{name}")).values
}

#[test]
fn published_data_sets_are_known_by_their_files() {
    for name in ["chexpert", "mimic", "nih", "nih_2017", "padchest", "vindr", "mura"] {
        let path = fixtures().join("layouts").join(name);
        let (found, offers) = recognise(&path).expect(name);
        assert_eq!(found, Found::Published(name.trim_end_matches("_2017"), path), "{name}");
        assert!(offers.iter().all(|offer| offer.proposed), "{name}");
        let expected = match name {
            "chexpert" | "mimic" => 14,
            "nih" | "nih_2017" => 15,
            "vindr" => 28,
            "mura" => 1,
            _ => offers.len().clamp(1, 20),
        };
        assert_eq!(offers.len(), expected, "{name}: {offers:?}");
    }
}

#[test]
fn columns_of_a_table_are_known_by_their_names_and_values() {
    let rows: String = (0..8)
        .map(|n| {
            let split = if n < 6 { "train" } else { "val" };
            let (edema, grade, site) = (n % 2, n % 3, if n % 2 == 0 { "A" } else { "B" });
            format!("p{n}.png,s{n},{split},{edema},,{grade},{site},{}.5,note {n}\n", 40 + n)
        })
        .collect();
    let header = "file,Patient ID,use,Edema,Empty,grade,site,age,remark\n";
    let (found, offers) = table(&[
        ("labels.csv", &(header.to_owned() + &rows)),
        ("images/p0.png", ""),
        ("b.txt", ""),
    ]);
    assert_eq!(found.table, Path::new("labels.csv"));
    assert_eq!(found.root.as_deref(), Some(Path::new("images")));
    assert_eq!(found.first, Path::new("images/p0.png"));
    let texts = (found.image.as_str(), found.patient.as_deref(), found.split.as_deref());
    assert_eq!(texts, ("file", Some("Patient ID"), Some("use")));
    assert!(!found.decimal_comma);
    let names: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
    assert_eq!(names, ["Edema", "grade", "site", "age"], "neither what is empty nor remarks");
    let classes = |names: &[&str]| {
        OfferValues::Classes(names.iter().map(|name| (*name).to_owned()).collect())
    };
    assert_eq!(*named(&offers, "Edema"), OfferValues::Findings(1));
    assert_eq!(*named(&offers, "grade"), classes(&["0", "1", "2"]));
    assert_eq!(*named(&offers, "site"), classes(&["A", "B"]));
    assert_eq!(*named(&offers, "age"), OfferValues::Numbers(1));
    let proposed: Vec<bool> = offers.iter().map(|offer| offer.proposed).collect();
    assert_eq!(proposed, [true, false, false, false]);
}

#[test]
fn paths_beside_the_table_and_decimal_commas_are_seen() {
    let rows = "Datei;Alter\na/1.png;41,5\na/2.png;39,25\n";
    let (found, offers) = table(&[("t.csv", rows), ("a/1.png", ""), ("a/2.png", "")]);
    assert_eq!((found.root, found.decimal_comma), (None, true));
    assert_eq!(*named(&offers, "Alter"), OfferValues::Numbers(1));
    assert!(offers[0].proposed, "there is nothing else");
}

#[test]
fn folders_of_classes_are_seen_with_and_without_lists() {
    let plain =
        folder(&[("cat/1.png", ""), ("cat/more/2.jpg", ""), ("dog/3.dcm", ""), ("x.md", "")]);
    let (Found::Classes(found), offers) = recognise(plain.path()).expect("classes") else {
        panic!("classes")
    };
    let images: Vec<_> =
        found.images.iter().map(|(path, class, list)| (path.to_str(), class, list)).collect();
    let (cat, dog) = ("cat".to_owned(), "dog".to_owned());
    assert_eq!(
        images,
        [
            (Some("cat/1.png"), &cat, &None),
            (Some("cat/more/2.jpg"), &cat, &None),
            (Some("dog/3.dcm"), &dog, &None)
        ]
    );
    assert_eq!(offers[0].values, OfferValues::Classes(vec![cat, dog]));
    let lists = folder(&[("train/a/1.png", ""), ("train/b/2.png", ""), ("val/a/3.png", "")]);
    let (Found::Classes(found), _) = recognise(lists.path()).expect("classes") else {
        panic!("classes")
    };
    let lists: Vec<Option<&str>> =
        found.images.iter().map(|(_, _, list)| list.as_deref()).collect();
    assert_eq!(lists, [Some("train"), Some("train"), Some("val")]);
}

#[test]
fn arrays_are_known_by_their_shapes_and_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["u16", "findings", "kind", "age", "patients", "split", "complex"] {
        let file = format!("{name}.npy");
        let from = fixtures().join("arrays").join(&file);
        fs::copy(from, folder.path().join(&file)).expect("is copied");
    }
    let (Found::Arrays(found), offers) = recognise(folder.path()).expect("arrays") else {
        panic!("arrays")
    };
    assert_eq!((found.images.as_str(), found.shape), ("u16.npy", [1, 4, 5]));
    assert_eq!(found.patients.as_deref(), Some("patients.npy"));
    assert_eq!(found.split.as_deref(), Some("split.npy"));
    assert_eq!(*named(&offers, "findings.npy"), OfferValues::Findings(2));
    let kinds = ["0", "1", "2"].map(str::to_owned).to_vec();
    assert_eq!(*named(&offers, "kind.npy"), OfferValues::Classes(kinds));
    assert_eq!(*named(&offers, "age.npy"), OfferValues::Numbers(3));
    assert_eq!(offers.len(), 3);
}

#[test]
fn what_is_no_data_is_refused_with_what_would_be() {
    let nothing = folder(&[("notes.txt", "mine"), ("t.csv", "a,b\n1,2\n")]);
    let reason = recognise(nothing.path()).expect_err("is nothing");
    assert!(reason.contains("t.csv: no column holds paths of images that are there"), "{reason}");
    assert!(reason.contains("a folder for each class"), "{reason}");
    let reason = recognise(&nothing.path().join("gone")).expect_err("is not there");
    assert!(reason.contains("there is no folder or table"), "{reason}");
    for (name, bytes) in
        [("a.csv", &b"\xff\xfe\0"[..]), ("b.parquet", b"PAR1"), ("c.npy", b"\x93NUMPY")]
    {
        let hostile = folder(&[]);
        fs::write(hostile.path().join(name), bytes).expect("is written");
        recognise(hostile.path()).expect_err(name);
    }
}
