//! Tests of the phantom as a whole: what is on disk, and what the pictures give away.

use std::collections::BTreeMap;

use super::*;
use crate::data::image::{Colour, Samples, read_image};

fn settings(root: PathBuf) -> PhantomSettings {
    PhantomSettings { root, patients: 6, size: 40, seed: 11, nodules: None }
}

/// Every file below a folder, by its relative path.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("reads") {
            let path = entry.expect("reads").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("lies below").to_owned();
                found.insert(name, fs::read(&path).expect("reads"));
            }
        }
    }
    found
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let folder = tempfile::tempdir().expect("is made");
    let write = |name: &str, seed: u64| {
        let root = folder.path().join(name);
        write_phantom(&PhantomSettings { seed, ..settings(root.clone()) }, untold).expect("writes");
        files(&root)
    };
    let first = write("a", 11);
    assert_eq!(first, write("b", 11));
    assert_ne!(first, write("c", 12));
    // The pictures do not depend on which thread drew which: each is drawn from its names alone.
    let alone = settings(folder.path().join("a"));
    let patient = Patient::draw(alone.seed, 3);
    let picture = &patient.studies[0].pictures[0];
    let film = draw(&alone, 3, &patient, 0, picture);
    let path = PathBuf::from(picture_path(3, 0, picture));
    assert_eq!(first[&path], encode_deep(&film, [alone.size; 2]).expect("encodes"));
}

#[test]
fn the_table_is_chexperts_and_its_images_decode() {
    let folder = tempfile::tempdir().expect("is made");
    let root = folder.path().join("phantom");
    let mut calls = Vec::new();
    let tell = |done, total| {
        calls.push((done, total));
        ControlFlow::Continue(())
    };
    write_phantom(&settings(root.clone()), tell).expect("writes");
    // It is asked again after a while, also before the first is done.
    calls.dedup();
    calls.retain(|(done, _)| *done > 0);
    assert_eq!(calls, (1..=6).map(|done| (done, 6)).collect::<Vec<_>>());
    let text = fs::read_to_string(root.join(TABLE)).expect("reads");
    insta::assert_snapshot!(text.lines().take(3).collect::<Vec<_>>().join("\n"), @r#"
    Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices
    train/patient00001/study1/view1_frontal.png,Male,32,Frontal,AP,0.0,,0.0,1.0,0.0,,1.0,,,0.0,0.0,,,1.0
    train/patient00002/study1/view1_frontal.png,Female,35,Frontal,PA,1.0,,0.0,0.0,0.0,,0.0,,,0.0,0.0,,,0.0
    "#);
    let mut names: Vec<PathBuf> = vec![TABLE.into(), RECORD.into()];
    for row in csv::Reader::from_reader(text.as_bytes()).records() {
        let name = row.expect("reads")[0].to_owned();
        let image = read_image(&root.join(&name), None, None, Colour::Luma).expect("decodes");
        assert_eq!((image.width, image.height), (40, 40));
        let Samples::U16(pixels) = image.samples else { panic!("has 16 bits") };
        assert!(pixels.iter().any(|value| value % 257 != 0), "uses them");
        names.push(name.into());
    }
    names.sort();
    assert_eq!(names, files(&root).into_keys().collect::<Vec<_>>());
}

#[test]
fn the_size_changes_no_label() {
    let table_of = |size| {
        let settings = PhantomSettings { size, ..settings("nowhere".into()) };
        table(&settings).expect("is written")
    };
    assert_eq!(table_of(32), table_of(3000));
}

/// The probability that a positive has the higher score, ties counting half.
fn auroc(scores: &[(f64, bool)]) -> f64 {
    let of = |wanted: bool| scores.iter().filter(move |(_, truth)| *truth == wanted);
    let pairs = of(true).flat_map(|(high, _)| of(false).map(move |(low, _)| (high, low)));
    let (mut wins, mut count) = (0.0, 0.0);
    for (high, low) in pairs {
        wins += if high > low { 1.0 } else { f64::from(u8::from(high == low)) / 2.0 };
        count += 1.0;
    }
    wins / count
}

#[test]
fn the_mean_intensity_tells_no_finding() {
    let settings = PhantomSettings { size: 32, ..settings("nowhere".into()) };
    let mut scores: BTreeMap<&str, Vec<(f64, bool)>> = BTreeMap::new();
    for index in 0..250 {
        let patient = Patient::draw(settings.seed, index as u64);
        for (number, study) in patient.studies.iter().enumerate() {
            for picture in &study.pictures {
                let film = draw(&settings, index, &patient, number, picture);
                let mean = film.iter().map(|&value| f64::from(value)).sum::<f64>();
                for name in FINDINGS {
                    if let Some(truth) = study.findings.truth(name) {
                        scores.entry(name).or_default().push((mean, truth));
                    }
                }
            }
        }
    }
    assert_eq!(scores.len(), 8);
    for (name, scores) in scores {
        let auroc = auroc(&scores);
        assert!((auroc - 0.5).abs() < 0.12, "{name}: {auroc} over {} images", scores.len());
    }
}

/// The pixels that a nodule changes by more than half of what it changes the most are as many as a disc of
/// its diameter has, at every pose.
#[test]
fn nodules_are_as_wide_as_the_table_says() {
    let settings = PhantomSettings {
        size: 400,
        nodules: Some([8, 24]),
        seed: 5,
        ..settings("nowhere".into())
    };
    let mut seen: Vec<f32> = Vec::new();
    for index in 0..60 {
        let mut patient = Patient::draw(settings.seed, index as u64);
        // Nothing else lies over it.
        let Some(lesion) = patient.studies[0].findings.lesion else { continue };
        let alone = |lesion| patient::Findings { lesion, ..Default::default() };
        let picture = Picture { view: View::Pa, number: 1 };
        patient.studies[0].findings = alone(Some(lesion));
        let with = draw(&settings, index, &patient, 0, &picture);
        patient.studies[0].findings = alone(None);
        let without = draw(&settings, index, &patient, 0, &picture);
        let change = with.iter().zip(&without).map(|(a, b)| f64::from(*a) - f64::from(*b));
        let change: Vec<f64> = change.collect();
        let most = change.iter().copied().fold(0.0, f64::max);
        let area = change.iter().filter(|change| **change > most / 2.0).count();
        let found = 2.0 * (area as f64 / std::f64::consts::PI).sqrt();
        let wanted = diameter(&settings, index).expect("has one");
        seen.push(wanted);
        assert!((found / f64::from(wanted) - 1.0).abs() < 0.15, "{index}: {found} of {wanted}");
    }
    let (least, most) =
        (seen.iter().copied().fold(99.0, f32::min), seen.iter().copied().fold(0.0, f32::max));
    assert!(seen.len() >= 10 && least < 12.0 && most > 20.0, "{seen:?}");
}

#[test]
fn diameters_of_nodules_change_nothing_else_of_the_table() {
    let plain = settings("nowhere".into());
    let lines = |settings: &PhantomSettings| -> Vec<String> {
        let text = String::from_utf8(table(settings).expect("is written")).expect("text");
        text.lines().map(str::to_owned).collect()
    };
    let sized = lines(&PhantomSettings { nodules: Some([3, 8]), ..plain.clone() });
    for (line, with) in lines(&plain).iter().zip(&sized) {
        let (before, last) = with.rsplit_once(',').expect("a column more");
        assert_eq!(before, line);
        let inside = last.parse::<f32>().map(|diameter| (3.0..=8.0).contains(&diameter));
        assert!(last == DIAMETER || inside == Ok(true), "{last}");
    }
    for nodules in [[1, 4], [5, 4], [4, 9]] {
        let settings = PhantomSettings { nodules: Some(nodules), ..plain.clone() };
        let error = ensure_phantom(&settings, untold).expect_err("is refused").to_string();
        assert!(error.contains("diameters go from 2 to 8"), "{error}");
    }
}

/// Every finding changes the film it is drawn on, in every view, by more than a trace.
#[test]
fn every_finding_shows_in_every_view() {
    let settings = PhantomSettings { size: 64, ..settings("nowhere".into()) };
    let ill = (0..400).map(|number| Patient::draw(1, number));
    let ill: Vec<Patient> =
        ill.filter(|patient| patient.studies[0].findings != patient::Findings::default()).collect();
    type Removal = fn(&mut patient::Findings);
    let without: [(&str, Removal); 6] = [
        ("cardiomegaly", |findings| findings.cardiomegaly = None),
        ("effusion", |findings| findings.effusion = None),
        ("lesion", |findings| findings.lesion = None),
        ("consolidation", |findings| findings.consolidation = None),
        ("pneumothorax", |findings| findings.pneumothorax = None),
        ("device", |findings| findings.device = None),
    ];
    for (name, remove) in without {
        let mut shown = 0;
        for patient in &ill {
            let mut healed = patient.clone();
            remove(&mut healed.studies[0].findings);
            if healed.studies[0].findings == patient.studies[0].findings || shown == 8 {
                continue;
            }
            shown += 1;
            for view in [View::Pa, View::Ap, View::Lateral] {
                let picture = Picture { view, number: 1 };
                let film = |patient: &Patient| draw(&settings, 0, patient, 0, &picture);
                let (with, without) = (film(patient), film(&healed));
                let changed =
                    with.iter().zip(&without).filter(|(a, b)| a.abs_diff(**b) > 65535 / 40).count();
                assert!(changed >= 8, "{name} in {view:?}: {changed} pixels");
            }
        }
        assert_eq!(shown, 8, "{name}");
    }
}

#[test]
fn a_phantom_is_reused_when_its_settings_agree_and_refused_when_not() {
    let folder = tempfile::tempdir().expect("is made");
    let settings = settings(folder.path().join("sub/phantom"));
    let ensure = |settings: &PhantomSettings| ensure_phantom(settings, untold);
    assert_eq!(ensure(&settings).expect("writes"), PhantomState::Written);
    assert_eq!(ensure(&settings).expect("finds"), PhantomState::Found);
    let said = |settings: &PhantomSettings| {
        let error = ensure(settings).expect_err("is refused");
        let text = format!("{error}\n{}", error.help().unwrap_or_default());
        text.replace(&folder.path().display().to_string(), "…")
    };
    let other = PhantomSettings { patients: 7, seed: 3, ..settings.clone() };
    insta::assert_snapshot!(said(&other), @r#"
    `…/sub/phantom` holds a phantom with other settings: patients 6 instead of 7, seed 11 instead of 3
    choose another folder, remove this one so that it is drawn anew, or ask for the settings it has
    "#);
    let sized = PhantomSettings { nodules: Some([2, 8]), ..settings.clone() };
    insta::assert_snapshot!(said(&sized), @r#"
    `…/sub/phantom` holds a phantom with other settings: nodules as wide as usual instead of 2 to 8 pixels wide
    choose another folder, remove this one so that it is drawn anew, or ask for the settings it has
    "#);
    fs::remove_file(settings.root.join(TABLE)).expect("is removed");
    insta::assert_snapshot!(said(&settings), @r#"
    `…/sub/phantom` exists and holds no phantom: it has no `train.csv`
    choose a folder that does not exist yet, or remove this one
    "#);
    fs::write(settings.root.join(RECORD), "{").expect("is written");
    insta::assert_snapshot!(said(&settings), @r#"
    `…/sub/phantom` exists and holds no phantom: its `phantom.json` is damaged (EOF while parsing an object at line 1 column 1)
    choose a folder that does not exist yet, or remove this one
    "#);
    let foreign = PhantomSettings { root: folder.path().join("sub"), ..settings.clone() };
    insta::assert_snapshot!(said(&foreign), @r#"
    `…/sub` exists and holds no phantom: its `phantom.json` cannot be read (No such file or directory (os error 2))
    choose a folder that does not exist yet, or remove this one
    "#);
    insta::assert_snapshot!(said(&PhantomSettings { size: 3001, ..settings.clone() }), @"a phantom's images are 32 to 3000 pixels high and wide, not 3001");
    insta::assert_snapshot!(said(&PhantomSettings { patients: 0, ..settings }), @"a phantom needs at least one patient");
}

#[test]
fn an_interrupted_write_leaves_no_phantom_and_is_cleared_away_by_the_next() {
    let folder = tempfile::tempdir().expect("is made");
    let settings = settings(folder.path().join("phantom"));
    let abandoned = folder.path().join("phantom.partial-0");
    fs::create_dir_all(abandoned.join("train")).expect("is made");
    fs::write(abandoned.join(Partial::LOCK), "").expect("is written");
    let busy = folder.path().join("phantom.partial-1");
    fs::create_dir_all(&busy).expect("is made");
    let lock = File::create(busy.join(Partial::LOCK)).expect("is made");
    lock.lock().expect("locks");

    // A caller that panics half-way stands for one that is killed: nothing is at the root.
    let stopped = std::panic::catch_unwind(|| {
        write_phantom(&settings, |done, _| {
            assert!(done < 3, "stopped here");
            ControlFlow::Continue(())
        })
    });
    assert!(stopped.is_err() && !settings.root.exists());
    // Who stops it leaves nothing of it.
    let enough =
        |done, _| if done < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let stopped = write_phantom(&settings, enough).expect_err("is stopped");
    assert!(matches!(stopped, DataError::Stopped), "{stopped}");
    assert_eq!(fs::read_dir(folder.path()).expect("reads").count(), 1, "what another draws");
    ensure_phantom(&settings, untold).expect("writes");
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .expect("reads")
        .map(|e| e.expect("reads").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["phantom", "phantom.partial-1"]);
}

/// Another process that looks for abandoned folders would take one that is not locked yet for such.
#[test]
fn no_folder_is_made_while_another_process_removes_abandoned_ones() {
    let folder = tempfile::tempdir().expect("is made");
    let entries = || fs::read_dir(folder.path()).expect("reads").count();
    let removing = File::open(folder.path()).expect("opens");
    removing.lock().expect("locks");
    thread::scope(|scope| {
        let create = scope.spawn(|| Partial::create(&folder.path().join("phantom")));
        thread::sleep(Duration::from_millis(200));
        assert_eq!(entries(), 0, "it waits");
        removing.unlock().expect("unlocks");
        let partial = create.join().expect("ends").expect("is made");
        let lock = File::open(partial.path.join(Partial::LOCK)).expect("opens");
        assert!(lock.try_lock().is_err(), "it is locked");
    });
    assert_eq!(entries(), 0);
}
