use std::path::Path;

use super::*;
use crate::data::open;

fn image(name: &str, patient: &str, list: &str) -> Image {
    let [name, patient, list] = [name, patient, list].map(str::to_owned);
    Image { source: String::new(), name, patient, list }
}

/// An image, and a number that stands for its labels.
type Labelled = (Image, u8);

fn list(images: &[Labelled]) -> SplitList {
    SplitList {
        images: images.iter().map(|(image, _)| image.clone()).collect(),
        labels: images.iter().map(|(_, labels)| [*labels; LABELS]).collect(),
    }
}

fn example() -> Vec<Labelled> {
    vec![
        (image("a, \"b\".png", "p1", "train"), 1),
        (image("two\nlines.png", "p2", "train"), 2),
        (image("a, \"b\".png", "p1", "train"), 1),
        (image("c.png", "ü", "validation"), 3),
    ]
}

#[test]
fn a_list_reads_back_as_written_and_what_was_edited_does_not() {
    let before = list(&example());
    let fingerprint = before.fingerprint(&[]);
    let (csv, labels) = (before.to_csv(), before.label_bytes());
    assert_eq!(SplitList::read(&csv, &labels, &fingerprint), Some(before.clone()));
    let without = SplitList { labels: Vec::new(), ..before };
    assert_eq!(SplitList::read(&csv, &[], &fingerprint), Some(without.clone()));
    assert_eq!(SplitList::read(&csv, &labels[1..], &fingerprint), Some(without));
    for place in 0..csv.len() {
        let mut edited = csv.clone();
        edited[place] ^= 1;
        let read = SplitList::read(&edited, &labels, &fingerprint);
        // The names of the columns are not looked at, and quotes may be written in several ways.
        assert!(read.is_none_or(|read| read.to_csv() == csv), "byte {place}");
    }
    assert_eq!(SplitList::read(b"", &[], &fingerprint), None);
    assert_eq!(SplitList::read(b"image\na\n", &[], &fingerprint), None);
}

#[test]
fn the_same_list_has_the_same_fingerprint_and_any_other_another() {
    let before = list(&example());
    let seal = TableSeal { path: "t.csv".into(), blake3: "1".into() };
    let fingerprint = before.fingerprint(&[]);
    assert!(fingerprint.is_same(&before.fingerprint(&[seal])), "tables alone decide nothing");
    let changed = |change: fn(&mut Vec<Labelled>)| {
        let mut images = example();
        change(&mut images);
        list(&images)
    };
    let others = [
        changed(|images| images.swap(0, 1)),
        changed(|images| drop(images.pop())),
        changed(|images| images.push((image("d.png", "p4", "train"), 1))),
        changed(|images| images[1].1 = 9),
        changed(|images| images[1].0.patient = "p9".into()),
        changed(|images| images[1].0.list = "validation".into()),
        changed(|images| images[1].0.source = "sources[1].csv".into()),
        // The same letters, divided otherwise.
        changed(|images| images[3].0 = image("c.png\u{fc}", "", "validation")),
    ];
    for other in others {
        assert!(!fingerprint.is_same(&other.fingerprint(&[])), "{other:?}");
        assert_ne!(before.changes(&other), Vec::<String>::new(), "{other:?}");
    }
    assert_eq!(before.changes(&before), Vec::<String>::new());
}

#[test]
fn an_image_that_is_listed_again_is_compared_in_its_order() {
    let before = list(&example());
    let mut images = example();
    images.remove(2);
    assert_eq!(before.changes(&list(&images)), ["1 image is gone: `a, \"b\".png`"]);
    assert_eq!(list(&images).changes(&before), ["1 image is new: `a, \"b\".png`"]);
}

#[test]
fn without_the_labels_of_then_it_is_said_that_they_may_be_others() {
    let before = SplitList { labels: Vec::new(), ..list(&example()) };
    let told = before.changes(&list(&example()[1..]));
    assert_eq!(told, ["1 image is gone: `a, \"b\".png`", "labels of the images may be others"]);
}

#[test]
fn images_of_several_sources_are_told_apart_and_named_below_their_folders() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts");
    let (chexpert, nih) = (examples.join("chexpert"), examples.join("nih"));
    let text = format!(
        "image = {{ size = [32, 32] }}\nvalidation = {{ fraction = 0.4 }}\n\
         [[sources]]\nchexpert = {{ root = {chexpert:?} }}\n[[sources]]\nnih = {{ root = {nih:?} }}"
    );
    let head = "name = 'f'\ntask = 'multilabel'\nlabels = ['Cardiomegaly']";
    let heads = [toml::from_str(head).expect("a head")];
    let splits = open(&toml::from_str(&text).expect("reads"), &heads, 3, crate::data::untold)
        .expect("opens");
    let list = SplitList::of(&splits);
    insta::assert_snapshot!(String::from_utf8(list.to_csv()).expect("is UTF-8"));
    let tables = splits.tables.iter().map(|seal| {
        let bytes = std::fs::read(&seal.path).expect("is a file");
        assert_eq!(seal.blake3, blake3::hash(&bytes).to_hex().as_str());
        Path::new(&seal.path).file_name().expect("a name").to_string_lossy().into_owned()
    });
    let tables: Vec<String> = tables.collect();
    assert_eq!(
        tables,
        ["train.csv", "train_val_list.txt", "test_list.txt", "Data_Entry_2017_v2020.csv"]
    );
}
