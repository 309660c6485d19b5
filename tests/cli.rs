//! Protects the command line: its help, its exit codes, and that nobody ever sees a panic.

use assert_cmd::Command;

fn trainer(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("trainer").expect("the program is built");
    command.args(arguments).env_remove("RUST_BACKTRACE");
    command
}

/// Exit code, standard output and standard error.
fn outcome(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = trainer(arguments).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_main_help_is_what_a_person_can_start_from() {
    let (code, help, _) = outcome(&["--help"]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!("help", help);
}

#[test]
fn the_help_of_run_explains_every_flag() {
    let (code, help, _) = outcome(&["run", "--help"]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!("help_run", help);
}

#[test]
fn every_command_is_in_the_help_and_in_the_readme() {
    let readme = include_str!("../README.md");
    let all = commands();
    assert!(all.contains(&"bench".to_owned()) && all.len() > 12, "{all:?}");
    for command in all {
        assert!(readme.contains(&format!("| `trainer {command}")), "{command} is not in README.md");
    }
}

/// Every command of the help, such as `run` and `data inspect`.
fn commands() -> Vec<String> {
    let mut all = Vec::new();
    for above in ["", "data "] {
        let (_, help, _) = outcome(&above.split_whitespace().chain(["--help"]).collect::<Vec<_>>());
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names = commands.map_while(|line| line.strip_prefix("  ")?.split(' ').next());
        all.extend(
            names
                .filter(|name| !["help", "data"].contains(name))
                .map(|name| format!("{above}{name}")),
        );
    }
    all
}

#[test]
fn no_arguments_show_the_help() {
    let (code, _, shown) = outcome(&[]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("Usage: trainer"), "{shown}");
}

#[test]
fn a_wrong_flag_ends_with_exit_code_2_and_the_nearest_right_one() {
    let (code, _, shown) = outcome(&["run", "a.toml", "--overwrit"]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("'--overwrite'"), "{shown}");
}

#[test]
fn an_unknown_subcommand_is_answered_with_the_nearest_one() {
    let (code, _, shown) = outcome(&["devcies"]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("'devices'"), "{shown}");
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for pair in [["--resume", "--overwrite"], ["--resume", "--init=a.safetensors"]] {
        let (code, _, shown) = outcome(&["run", "a.toml", pair[0], pair[1]]);
        assert_eq!(code, Some(2), "{pair:?}");
        assert!(shown.contains("cannot be used with"), "{shown}");
    }
}

#[test]
fn an_override_without_an_equals_sign_is_refused_with_an_example() {
    let (code, _, shown) = outcome(&["check", "a.toml", "--set", "train.epochs"]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("write KEY=VALUE, such as train.batch_size=32"), "{shown}");
}

#[test]
fn a_phantom_needs_its_settings() {
    let (code, _, shown) = outcome(&["data", "phantom", "--out", "a"]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("--patients <N>") && shown.contains("--size <S>"), "{shown}");
}

#[test]
fn numbers_that_make_no_phantom_and_no_samples_are_refused_with_their_flag() {
    let folder = tempfile::tempdir().expect("is made");
    let out = folder.path().join("data").display().to_string();
    let refused = |arguments: &[&str]| {
        let (code, told, shown) = outcome(arguments);
        assert_eq!((code, told.as_str()), (Some(2), ""), "{shown}");
        shown.lines().next().unwrap_or_default().to_owned()
    };
    let phantom = |patients: &str, size: &str| {
        refused(&["data", "phantom", "--out", &out, "--patients", patients, "--size", size])
    };
    insta::assert_snapshot!(phantom("0", "64"), @"error: invalid value '0' for '--patients <N>': 0 is not in 1..=4294967295");
    insta::assert_snapshot!(phantom("2", "9000"), @"error: invalid value '9000' for '--size <S>': 9000 is not in 32..=3000");
    insta::assert_snapshot!(phantom("2", "31"), @"error: invalid value '31' for '--size <S>': 31 is not in 32..=3000");
    let config = "configs/experiments/11_cnn_regression.toml";
    insta::assert_snapshot!(refused(&["data", "random", config, "--samples", "0"]), @"error: invalid value '0' for '--samples <N>': number would be zero for non-zero type");
    assert!(!folder.path().join("data").exists());
}

#[test]
fn random_samples_for_other_data_are_refused_where_the_data_are_named() {
    let refused = |arguments: &[&str]| {
        let all = [&["data", "random"], arguments, &["--samples", "10"]].concat();
        let (code, told, shown) = outcome(&all);
        assert_eq!((code, told.as_str()), (Some(2), ""), "{shown}");
        shown
    };
    insta::assert_snapshot!(refused(&["configs/quickstart.toml"]), @r"
    error: random samples are written into `[data.arrays]`, which is not there
      --> configs/quickstart.toml:14:1
       |
    14 | [data]
       | ^^^^^^
       |
       = help: add `[data.arrays]` with `images` and `targets` in place of other data; `trainer data phantom` draws radiographs
    ");
    let config = "configs/experiments/11_cnn_regression.toml";
    let set = |value| refused(&[config, "--set", value]);
    insta::assert_snapshot!(set("data.arrays.images=x.npz"), @r#"
    error: random samples cannot be written into "x.npz"
     |
     | --set data.arrays.images=x.npz
     |                          ^^^^^
     |
     = help: name a file that ends in `.npy`
    "#);
    insta::assert_snapshot!(set("data.arrays.patients=p.npy"), @r"
    error: random samples have no `patients`
     |
     | --set data.arrays.patients=p.npy
     |                            ^^^^^
     |
     = help: remove it
    ");
}

#[test]
fn a_phantom_drawn_again_is_found_and_another_is_not_drawn_over() {
    let folder = tempfile::tempdir().expect("is made");
    let out = folder.path().join("phantom").display().to_string();
    let phantom = |patients: &str| {
        let numbers = ["--patients", patients, "--size", "32"];
        let (code, told, shown) =
            outcome(&[&["data", "phantom", "--out", &out], &numbers[..]].concat());
        (code, told.replace(&out, "DIR"), shown.replace(&out, "DIR"))
    };
    let files = || {
        let entries = std::fs::read_dir(&out).expect("reads").map(|entry| entry.expect("reads"));
        let mut found: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        found.sort();
        (found, std::fs::read(folder.path().join("phantom/train.csv")).expect("reads"))
    };
    let (code, told, shown) = phantom("2");
    assert_eq!((code, told.as_str()), (Some(0), "2 patients drawn in DIR\n"));
    // No terminal is there for a bar.
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert_eq!(lines[0], "drawing the radiographs of 2 patients, once");
    assert!(lines[1].starts_with("drew the radiographs of 2 patients in "), "{shown}");
    let before = files();
    let (code, told, shown) = phantom("2");
    assert_eq!((code, shown.as_str()), (Some(0), ""));
    insta::assert_snapshot!(told, @"DIR holds this phantom already, of 2 patients: nothing to do");
    let (code, _, shown) = phantom("3");
    assert_eq!(code, Some(3));
    insta::assert_snapshot!(shown, @r"
    error: `DIR` holds a phantom with other settings: patients 2 instead of 3
      = help: choose another folder, remove this one so that it is drawn anew, or ask for the settings it has
    ");
    assert_eq!(files(), before);
}

#[test]
fn a_metric_that_is_undefined_has_its_reason_at_the_end_and_in_the_table() {
    let folder = tempfile::tempdir().expect("is made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    // Three validation images, of which some labels have one class only.
    let sets = [
        format!("--set=data.phantom={{root={:?},patients=12,size=40,seed=1}}", path("data")),
        format!("--set=run.output={:?}", folder.path()),
        "--set=train.epochs=2".to_owned(),
    ];
    let run = |more: &[&str]| -> (serde_json::Value, String) {
        let all = [&["run", "configs/quickstart.toml", "--device", "cpu"], more].concat();
        let all: Vec<&str> = all.into_iter().chain(sets.iter().map(String::as_str)).collect();
        let (code, told, shown) = outcome(&all);
        assert_eq!(code, Some(0), "{shown}");
        let metrics = std::fs::read_to_string(path("quickstart/metrics.jsonl")).expect("is there");
        let last = metrics.lines().last().expect("has lines");
        (serde_json::from_str(last).expect("is JSON"), told)
    };
    let (end, told) = run(&[]);
    assert_eq!(end["event"], "end");
    let values = end["last"]["val"].as_object().expect("values");
    let nulls: Vec<&String> =
        values.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name).collect();
    let undefined = end["undefined"].as_object().expect("reasons");
    assert!(nulls.len() > 2 && nulls.len() < values.len(), "{nulls:?}");
    assert_eq!(undefined.keys().collect::<Vec<_>>(), nulls);
    let reasons: Vec<&str> =
        undefined.values().map(|reason| reason.as_str().expect("text")).collect();
    assert!(reasons.iter().any(|reason| reason.starts_with("one class only: ")), "{reasons:?}");
    for reason in reasons {
        assert!(told.replace("\n  ", " ").contains(&format!("undefined ({reason}): ")), "{told}");
    }
    // A run that is over still knows them.
    let (again, _) = run(&["--resume"]);
    assert_eq!(again["undefined"], end["undefined"]);
}

/// `script` gives the program a terminal, whose size `stty` sets.
#[cfg(target_os = "linux")]
#[test]
fn in_a_narrow_terminal_nothing_is_wider_than_it() {
    let folder = tempfile::tempdir().expect("is made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let program = assert_cmd::cargo::cargo_bin("trainer");
    let sets = [
        format!("data.phantom={{root={:?},patients=12,size=40,seed=1}}", path("data")),
        format!("run.output={:?}", folder.path()),
        "run.name=narrow".to_owned(),
        "train.epochs=2".to_owned(),
        "device.use=cpu".to_owned(),
    ];
    let sets: String = sets.iter().map(|set| format!(" --set '{set}'")).collect();
    let run = format!("{} run configs/quickstart.toml{sets}", program.display());
    let plan = format!("{} plan configs/quickstart.toml", program.display());
    for (columns, command) in [(40, &run), (60, &plan), (80, &plan)] {
        let shell = format!("stty cols {columns} rows 24 && {command}");
        let mut script = std::process::Command::new("script");
        script.args(["--quiet", "--return", "--command", &shell, "/dev/null"]);
        script.stdin(std::process::Stdio::null()).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        let output = script.output().expect("`script` of util-linux is there");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{shown}");
        // Paths and keys stay whole.
        let whole = |line: &str| {
            !line.contains(' ') || line.contains(folder.path().to_str().expect("UTF-8"))
        };
        let plain = console::strip_ansi_codes(&shown).into_owned();
        let lines: Vec<&str> = plain.split(['\r', '\n']).map(str::trim_end).collect();
        assert!(lines.len() > 10, "{shown}");
        for line in lines.into_iter().filter(|line| !whole(line)) {
            assert!(console::measure_text_width(line) <= columns, "{columns}: {line:?}\n{plain}");
        }
    }
}

#[test]
fn a_folder_to_offload_to_that_is_not_there_is_found_before_anything_is_opened() {
    let folder = tempfile::tempdir().expect("is made");
    let root = folder.path().display().to_string();
    let output = format!("run.output={root:?}");
    let set = "memory.offload={disk={path=\"/nonexistent\"}}";
    for command in ["run", "trace", "bench"] {
        let arguments = [command, "configs/quickstart.toml", "--set", &output, "--set", set];
        let (code, told, shown) = outcome(&arguments);
        assert_eq!((code, told.as_str()), (Some(2), ""), "{shown}");
        insta::allow_duplicates! { insta::assert_snapshot!(shown, @r#"
        error: no file can be made in `/nonexistent`: No such file or directory (os error 2)
         |
         | --set memory.offload={disk={path="/nonexistent"}}
         |                                  ^^^^^^^^^^^^^^
         |
         = help: write an existing folder on a fast disk that this program may write into
        "#); }
        assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 0, "{command}");
    }
    // What a configuration means does not depend on where it is looked at.
    for command in ["check", "plan"] {
        let (code, _, shown) = outcome(&[command, "configs/quickstart.toml", "--set", set]);
        assert_eq!(code, Some(0), "{shown}");
    }
}

#[test]
fn a_training_that_is_shorter_than_its_warm_up_is_tried_with_a_warning() {
    let one = ["configs/xray_densenet.toml", "--set", "train.epochs=1"];
    for command in ["check", "plan"] {
        let (code, told, shown) = outcome(&[&[command], &one[..]].concat());
        assert_eq!(code, Some(0), "{shown}");
        assert!(!told.contains("warm-up"), "{told}");
        let warning = shown.lines().find(|line| line.starts_with("warning: "));
        let warning = warning.unwrap_or_default();
        assert!(warning.starts_with("warning: the training of 1 epoch is all warm-up"), "{shown}");
    }
}

#[test]
fn a_first_try_of_one_epoch_in_batches_of_two_trains_and_is_told_that_it_is_all_warm_up() {
    let folder = tempfile::tempdir().expect("is made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let set = [
        format!("run={{name=\"try\",output={:?}}}", path("runs")),
        format!("data.phantom={{root={:?},patients=8,size=32,seed=1}}", path("data")),
        "data.image.size=[32,32]".to_owned(),
        "model.densenet={growth=4,blocks=[1,1],stem=8}".to_owned(),
        "train.schedule.cosine.warmup_epochs=3".to_owned(),
        "train.epochs=1".to_owned(),
        "train.batch_size=2".to_owned(),
        "device.use=cpu".to_owned(),
    ];
    let set: Vec<&str> = set.iter().flat_map(|one| ["--set", one]).collect();
    let (code, _, shown) = outcome(&[&["run", "configs/quickstart.toml"], &set[..]].concat());
    assert_eq!(code, Some(0), "{shown}");
    let told = "the training of 1 epoch is all warm-up (`warmup_epochs = 3`";
    assert!(shown.contains(&format!("warning: {told}")), "{shown}");
    let metrics = std::fs::read_to_string(folder.path().join("runs/try/metrics.jsonl"));
    let metrics = metrics.expect("is written");
    let warned = metrics.lines().find(|line| line.contains("\"event\":\"warning\""));
    assert!(warned.is_some_and(|line| line.contains(told)), "{metrics}");
}

#[test]
fn relative_paths_count_from_the_folder_in_which_the_program_is_started() {
    let folder = tempfile::tempdir().expect("is made");
    let shown = |arguments: &[&str]| {
        let output = trainer(arguments).current_dir(folder.path()).output().expect("starts");
        let shown = String::from_utf8(output.stderr).expect("is UTF-8");
        (output.status.code(), shown.replace(&folder.path().display().to_string(), "HERE"))
    };
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/base.toml");
    let (code, told) = shown(&["data", "inspect", base]);
    assert_eq!(code, Some(3));
    let message = "error: there is no folder `datasets/chexpert` (looked in HERE)\n";
    assert!(told.starts_with(message), "{told}");
    let (code, told) = shown(&["check", "base.toml"]);
    assert_eq!(code, Some(2));
    insta::assert_snapshot!(told, @r"
    error: there is no file base.toml (looked in HERE)
     |
     = help: check the path
    ");
    let init = ["--set", "data.phantom={root='data',patients=4,size=32}", "--init", "w.pth"];
    let quickstart = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/quickstart.toml");
    let (code, told) = shown(&[&["run", quickstart], &init[..]].concat());
    assert_eq!(code, Some(3));
    let message = "cannot read the weights in w.pth (looked in HERE)";
    assert!(told.contains(message), "{told}");
    // The data are drawn where the program was started.
    assert!(folder.path().join("data/train.csv").exists());
}

#[test]
fn a_preview_shows_training_and_validation_images_in_a_png() {
    let folder = tempfile::tempdir().expect("is made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let set = |key: &str, value: String| format!("--set={key}={value}");
    let (root, config) = (path("data"), "configs/quickstart.toml");
    let phantom = format!("{{root={root:?},patients=12,size=40,seed=1}}");
    let (phantom, out) = (set("data.phantom", phantom), path("sheet.png"));
    let augment = set("data.augment", "{rotate_degrees=10,mixup=1.0}".to_owned());
    let preview = |more: &[&str]| {
        let all = ["data", "preview", config, &phantom, &augment, "--out", &out];
        let (code, told, shown) = outcome(&[&all, more].concat());
        assert_eq!(code, Some(0), "{shown}");
        let png = std::fs::read(&out).expect("is written");
        let reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("is a PNG");
        let (width, height) = reader.info().size();
        let size = format!("{width}×{height} pixels");
        assert!(told.contains(&size) && told.contains("sheet.png"), "{told}");
        (told, width, height)
    };
    let (told, width, height) = preview(&["--count", "2", "--epochs", "2"]);
    assert!(told.starts_with("2 images in "), "{told}");
    let (_, wider, _) = preview(&["--count", "2", "--epochs", "3"]);
    let (_, _, higher) = preview(&["--count", "3", "--epochs", "2"]);
    assert!(wider > width && higher > height);
    let (told, ..) = preview(&["--count", "1", "--split", "validation"]);
    assert!(told.starts_with("1 image in "), "{told}");
}

#[test]
fn a_preview_is_a_png_and_says_so() {
    let preview = |out: &str, count: &str| {
        let config = "configs/quickstart.toml";
        outcome(&["data", "preview", config, "--out", out, "--count", count])
    };
    let (code, _, shown) = preview("sheet.jpg", "2");
    assert_eq!(code, Some(2));
    assert!(shown.contains("--out sheet.png"), "{shown}");
    let (code, _, shown) = preview("sheet.png", "0");
    assert_eq!(code, Some(2));
    assert!(shown.contains("1..=200"), "{shown}");
}

#[test]
fn devices_are_listed_on_every_machine() {
    let (code, listed, shown) = outcome(&["devices"]);
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{listed}");
    assert!(cfg!(not(feature = "cpu")) || listed.contains("cpu "), "{listed}");
    assert!(listed.contains("cuda:0") || listed.contains("no GPU: "), "{listed}");
}

#[test]
fn devices_are_listed_for_scripts_by_the_names_that_configurations_take() {
    let (code, printed, _) = outcome(&["devices", "--json"]);
    assert_eq!(code, Some(0));
    let found: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(found["devices"][0]["name"], "cpu");
    assert!(found["devices"][0]["threads"].as_u64() > Some(0), "{found}");
}

#[test]
fn a_checked_configuration_is_the_same_in_json() {
    let (_, toml, _) = outcome(&["check", "configs/quickstart.toml"]);
    let (code, json, _) = outcome(&["check", "configs/quickstart.toml", "--json"]);
    assert_eq!(code, Some(0));
    let toml: serde_json::Value = toml::from_str(&toml).expect("TOML");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), toml);
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let (code, script, _) = outcome(&["completions", "bash"]);
    assert_eq!(code, Some(0));
    // What bash itself would offer behind these words.
    let offered = |words: &[&str]| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={}; _trainer trainer '{}' '{}'\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let output = std::process::Command::new("bash").args(["-c", &ask]).output();
        let output = output.expect("bash starts");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(offered(&["trainer", "dev"])), ["devices"]);
    assert_eq!(lines(offered(&["trainer", "data", "insp"])), ["inspect"]);
    assert_eq!(lines(offered(&["trainer", "run", "--ov"])), ["--overwrite"]);
    assert_eq!(lines(offered(&["trainer", "list", "--sort", "na"])), ["name"]);
}

#[test]
fn every_shell_has_completions_that_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, script, _) = outcome(&["completions", shell]);
        assert_eq!(code, Some(0), "{shell}");
        for word in ["devices", "inspect", "overwrite"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let (code, _, shown) = outcome(&["completions", "tcsh"]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("[possible values: bash, elvish, fish, powershell, zsh]"), "{shown}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1").display().to_string();
    let (code, _, shown) = outcome(&["man", "--out", &out]);
    assert_eq!(code, Some(0), "{shown}");
    let mut names = vec!["trainer".to_owned()];
    names.extend(commands().iter().map(|command| format!("trainer-{}", command.replace(' ', "-"))));
    for name in names {
        let path = folder.path().join(format!("man1/{name}.1"));
        let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        for part in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(page.contains(part), "{name}: {part}");
        }
    }
    let (code, page, _) = outcome(&["man"]);
    assert_eq!((code, page.contains(".TH trainer 1")), (Some(0), true));
}

#[test]
fn the_schema_is_json_that_knows_the_tables() {
    let (code, schema, _) = outcome(&["schema"]);
    assert_eq!(code, Some(0));
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("is JSON");
    for table in ["run", "device", "data", "model", "heads", "train", "memory"] {
        assert!(schema["properties"].get(table).is_some(), "{table}");
    }
}
