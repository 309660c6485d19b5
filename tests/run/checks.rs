//! What is looked at before a run folder is made or an older run removed.

use super::*;

/// Something that is wrong, and the exit code and message that it ends with.
fn each_mistake(mode: &[&str], check: impl Fn(&Experiment, &str, &dyn Fn(i32, &[&str]) -> String)) {
    type Spoil = fn(&Experiment);
    let images: Spoil = |e| fs::rename(e.path("images"), e.path("moved")).expect("is moved");
    let table: Spoil = |e| fs::rename(e.path("t.csv"), e.path("moved.csv")).expect("is moved");
    let damaged: Spoil = |e| fs::write(e.path("images/6.png"), "no image").expect("is written");
    let nothing: Spoil = |_| {};
    // Some six terabytes of weights.
    let huge: Spoil = |e| {
        let hidden = format!("task = \"multilabel\"\nhidden = {:?}", [65536; 400]);
        let config = CONFIG.replace("task = \"multilabel\"", &hidden);
        fs::write(e.path("a.toml"), config).expect("is written");
    };
    let mistakes: [(&str, Spoil, &[&str]); 6] = [
        ("images", images, &[]),
        ("root", nothing, &["--set", "data.csv.root=elsewhere"]),
        ("table", table, &[]),
        ("validation image", damaged, &[]),
        ("weights", nothing, &["--init", "absent.safetensors"]),
        ("room", huge, &[]),
    ];
    for (name, spoil, arguments) in mistakes {
        let experiment = Experiment::new();
        if mode == ["--overwrite"] {
            experiment.trained(&[]);
        }
        spoil(&experiment);
        let refused =
            |code, more: &[&str]| experiment.refused(code, &[mode, arguments, more].concat());
        check(&experiment, name, &refused);
    }
}

/// The exit code of each mistake.
fn code(name: &str) -> i32 {
    if name == "room" { 1 } else { 3 }
}

#[test]
fn an_overwrite_that_cannot_be_costs_the_finished_run_nothing() {
    each_mistake(&["--overwrite"], |experiment, name, refused| {
        let before = experiment.files("runs");
        refused(code(name), &[]);
        assert!(experiment.files("runs") == before, "{name}");
    });
}

#[test]
fn a_new_run_that_cannot_be_leaves_no_folder_and_says_what_to_do() {
    each_mistake(&[], |experiment, name, refused| {
        let told = refused(code(name), &[]);
        let here = experiment.path("");
        let told = told.replace(here.to_string_lossy().trim_end_matches('/'), "HERE");
        assert!(!experiment.path("runs").exists(), "{name}");
        // The disk has what it has.
        let told = told.split(" has ").map(|part| match part.split_once(" free, ") {
            Some((_, rest)) => format!("FREE free, {rest}"),
            None => part.to_owned(),
        });
        let told = told.collect::<Vec<_>>().join(" has ");
        insta::assert_snapshot!(name.replace(' ', "_"), told);
    });
}

#[test]
fn a_mistake_put_right_is_all_that_a_second_try_needs() {
    let experiment = Experiment::new();
    experiment.refused(3, &["--set", "data.csv.root=elsewhere"]);
    experiment.trained(&[]);
    let again = experiment.refused(2, &[]);
    assert!(again.contains("holds a run already"), "{again}");
}

/// A NumPy file of 32-bit zeros.
fn npy(shape: &[usize]) -> Vec<u8> {
    let sides: Vec<String> = shape.iter().map(|side| format!("{side},")).collect();
    let sides = sides.concat();
    let about = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({sides}), }}");
    let header = format!("{about:<117}\n");
    let numbers = vec![0; 4 * shape.iter().product::<usize>()];
    [&b"\x93NUMPY\x01\0"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &numbers]
        .concat()
}

#[test]
fn an_array_of_another_shape_is_found_before_the_run_folder_is_made() {
    let experiment = Experiment::new();
    fs::write(experiment.path("images.npy"), npy(&[6, 32, 40, 1])).expect("is written");
    fs::write(experiment.path("y.npy"), npy(&[6, 2])).expect("is written");
    let csv =
        CONFIG.find("[data.csv]").expect("is there")..CONFIG.find("[model").expect("is there");
    let arrays = "[data.arrays]\nimages = \"images.npy\"\ntargets = { findings = \"y.npy\" }\n";
    let config = CONFIG.replace(&CONFIG[csv], arrays);
    fs::write(experiment.path("a.toml"), config).expect("is written");
    insta::assert_snapshot!(experiment.refused(3, &["--set", "data.validation.fraction=0.5"]));
    assert!(!experiment.path("runs").exists());
}

#[test]
fn images_that_are_all_bad_are_refused_though_bad_ones_may_be_skipped() {
    let experiment = Experiment::new();
    for number in 0..10 {
        fs::write(experiment.path(&format!("images/{number}.png")), "no image")
            .expect("is written");
    }
    let skip = ["--set", "data.on_bad_image=skip"];
    insta::assert_snapshot!(experiment.refused(3, &skip));
    assert!(!experiment.path("runs").exists());
    // One that can be read is enough to begin.
    experiment.draw("images/5.png", 5);
    experiment.draw("images/9.png", 9);
    experiment.trained(&skip);
}

#[test]
fn images_that_go_bad_later_end_the_run_instead_of_an_empty_epoch() {
    use trainer::build::{Options, build};
    use trainer::run::FolderMode;
    for (list, numbers) in [("training", 0..6), ("validation", 6..10)] {
        let experiment = Experiment::new();
        let at = |name: &str| format!("{:?}", experiment.path(name));
        let set = [
            format!("data.csv.table={}", at("t.csv")),
            format!("run.output={}", at("runs")),
            "data.on_bad_image=skip".to_owned(),
        ];
        let loaded = trainer::config::load(&experiment.path("a.toml"), &set).expect("is right");
        let plan = trainer::plan::plan(loaded.config).expect("is right");
        let mut run = build(plan, &Options { mode: FolderMode::New }).expect("opens");
        for number in numbers {
            fs::remove_file(experiment.path(&format!("images/{number}.png"))).expect("is removed");
        }
        let error = run.execute().expect_err("has no images");
        let folder = experiment.folder.path().display().to_string();
        insta::assert_snapshot!(list, error.to_string().replace(&folder, "DIR"));
        assert_eq!(trainer::cli::Failure::from(error).kind().exit_code(), 3);
    }
}

#[test]
fn one_image_under_two_patients_or_with_two_labels_is_refused_by_file_and_line() {
    let refused = |row: &str| {
        let experiment = Experiment::new();
        experiment.write_rows(&[experiment.rows(), vec![row.to_owned()]].concat());
        let told = experiment.refused(3, &[]);
        assert!(!experiment.path("runs").exists());
        told
    };
    // On the other side of the split, under another patient.
    insta::assert_snapshot!(refused("images/1.png,p99,valid,0,0"));
    insta::assert_snapshot!(refused("images/../images/1.png,p1,train,0,0"));
}

#[test]
fn a_row_that_repeats_another_is_kept_and_said() {
    let experiment = Experiment::new();
    let again = ["images/1.png,p1,train,1,0", "images/2.png,p2,train,,1"].map(str::to_owned);
    experiment.write_rows(&[experiment.rows(), again.to_vec()].concat());
    insta::assert_snapshot!(experiment.trained(&[]).warnings());
    assert_eq!(experiment.events("start")[0]["train_images"], 8);
    let one = Experiment::new();
    one.write_rows(&[one.rows(), again[..1].to_vec()].concat());
    let said = one.trained(&[]).warnings();
    assert!(said.contains("1 row of `data.csv` names an image"), "{said}");
}

#[test]
fn a_batch_above_the_data_is_planned_as_the_images_that_there_are() {
    let memory = |batch: &str| {
        let experiment = Experiment::new();
        experiment.trained(&["--set", batch, "--set", "memory.budget=\"8GiB\""]);
        experiment.events("start")[0]["memory"].clone()
    };
    let all = memory("train.batch_size=6");
    assert_eq!(all["micro_batch"], 6);
    assert_eq!(memory("train.batch_size=512"), all);
}

#[test]
fn files_that_are_missing_are_counted_before_anything_is_made_or_removed() {
    let experiment = Experiment::new();
    experiment.trained(&[]);
    for image in ["images/3.png", "images/8.png"] {
        fs::remove_file(experiment.path(image)).expect("is there");
    }
    let before = experiment.files("runs");
    let told = experiment.refused(3, &["--overwrite"]);
    let here = experiment.path("");
    insta::assert_snapshot!(told.replace(here.to_string_lossy().trim_end_matches('/'), "HERE"));
    assert!(experiment.files("runs") == before);
    experiment.trained(&["--overwrite", "--set", "data.on_bad_image=skip"]);
}

#[test]
fn paths_that_name_no_file_are_met_with_what_they_may_mean() {
    let refused = |from: &str, to: &str| {
        let experiment = Experiment::new();
        let rows = experiment.rows();
        let row = |(place, row): (usize, &String)| match place {
            2 => row.replace(from, to),
            _ => row.clone(),
        };
        experiment.write_rows(&rows.iter().enumerate().map(row).collect::<Vec<_>>());
        let told = experiment.refused(3, &[]);
        told.lines().last().expect("a help").to_owned()
    };
    insta::assert_snapshot!(refused("images/", "images\\"));
    insta::assert_snapshot!(refused(".png", ""));
}

#[test]
fn a_split_by_patient_without_patients_is_warned_of() {
    let warned = |patient: &str| {
        let experiment = Experiment::new();
        let config = CONFIG.replace("patient = \"patient\"\nsplit = \"split\"\n", patient);
        fs::write(experiment.path("a.toml"), config).expect("is written");
        experiment.trained(&["--set", "data.validation={fraction=0.5,by=\"patient\"}"]).warnings()
    };
    insta::assert_snapshot!(warned(""));
    assert_eq!(warned("patient = \"patient\"\n"), "");
    assert_eq!(warned("patient = \"image\"\n"), "");
    let listed = Experiment::new();
    let config = CONFIG.replace("patient = \"patient\"\n", "");
    fs::write(listed.path("a.toml"), config).expect("is written");
    assert_eq!(listed.trained(&[]).warnings(), "", "nothing is set aside by patient");
}

#[test]
fn a_validation_list_that_a_fraction_leaves_out_is_warned_of() {
    let experiment = Experiment::new();
    let told = experiment.trained(&["--set", "data.validation.fraction=0.5"]);
    insta::assert_snapshot!(told.warnings());
}
