//! Configurations: what loads, what it resolves to, and what every mistake is told.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use proptest::prelude::*;
use trainer::config::{ConfigError, Loaded, load, read, schema};
use trainer::plan::{Plan, plan};

const BASE: &str = include_str!("config/base.toml");
const FILE: &str = "experiment.toml";

/// Words of serde, which mean nothing to who writes TOML.
const JARGON: [&str; 12] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "missing field",
    "unknown field",
    "unknown variant",
    "did not match",
    "untagged",
    "externally",
    "a map",
    "sequence",
    "usize",
];

fn resolve(text: &str, overrides: &[String]) -> Result<Plan, ConfigError> {
    let Loaded { config, source } = read(FILE.to_owned(), text.to_owned(), overrides)?;
    plan(config).map_err(|fault| source.error(fault))
}

fn assert_helps(error: &ConfigError) {
    let position = error.position().unwrap_or_else(|| panic!("no position: {error}"));
    assert!(position.line >= 1 && position.column >= 1);
    let help = error.help().unwrap_or_else(|| panic!("says not what to write: {error}"));
    let said = format!("{} {help}", error.message());
    for word in JARGON {
        assert!(!said.contains(word), "{word:?} in {error}");
    }
    assert!(error.render(true).contains('\u{1b}'));
    assert!(!error.render(false).contains('\u{1b}'));
}

/// A mistake: its name, what it replaces in the base, by what, and the text that must be shown as
/// faulty (empty where something is missing).
type Mistake = (&'static str, &'static str, &'static str, &'static str);

/// Every message of `mistakes`, for a snapshot. What is underlined is checked here and not left to
/// the snapshot.
fn messages(mistakes: &[Mistake]) -> String {
    let mut all = String::new();
    for (name, old, new, faulty) in mistakes {
        assert_eq!(BASE.matches(old).count(), 1, "{name}: {old:?} must stand once in the base");
        let error = resolve(&BASE.replace(old, new), &[]).expect_err(name);
        assert_helps(&error);
        assert_eq!(error.position().unwrap().faulty(), *faulty, "{name}\n{error}");
        assert_eq!(error.position().unwrap().file.as_deref(), Some(FILE));
        all += &format!("# {name}\n\n{error}\n\n");
    }
    all
}

#[test]
fn syntax_errors_show_their_place() {
    let mistakes: &[Mistake] = &[
        ("a string without quotes", "\"base\"", "base", "base"),
        ("a string that is not closed", "\"base\"", "\"base", ""),
        ("a header that is not closed", "[train]", "[train", ""),
        ("an array that is not closed", "[\"PA\", \"AP\"]", "[\"PA\", \"AP\"", ""),
        ("a key twice", "epochs = 20", "epochs = 20\nepochs = 30", "epochs"),
        ("a table twice", "[memory]", "[train]", "train"),
        ("a colon", "epochs = 20", "epochs: 20", ":"),
        ("Python's true", "use = \"cpu\"", "use = True", "True"),
        ("a value is missing", "epochs = 20", "epochs =", ""),
        ("two values on a line", "epochs = 20", "epochs = 20 30", "20 30"),
        (
            "a number that overflows",
            "seed = 7",
            "seed = 9223372036854775808",
            "9223372036854775808",
        ),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn misspelt_keys_show_the_nearest_one() {
    let mistakes: &[Mistake] = &[
        ("at the top", "[memory]", "[memry]", "memry"),
        ("in a table", "epochs = 20", "epoch = 20", "epoch"),
        ("with a hyphen", "batch_size", "batch-size", "batch-size"),
        ("in British English", "[train.optimizer.adamw]", "[train.optimiser.adamw]", "optimiser"),
        ("in an inline table", "channels = 1", "chanels = 1", "chanels"),
        ("in an entry of an array", "weight = 0.1", "wieght = 0.1", "wieght"),
        ("in a choice", "warmup_epochs = 1", "warmup = 1", "warmup"),
        ("in a choice in an array", "pos_weight", "pos_wieght", "pos_wieght"),
        ("in a layout", "uncertain = \"ones\"", "uncertian = \"ones\"", "uncertian"),
        ("under a dotted key", "use = \"cpu\"", "use = \"cpu\"\nuse_.a = 1", "use_"),
        ("in another table", "patience = 5", "patience = 5\nlr = 1e-3", "lr"),
        ("at the top, but written below", "depth = 121", "depth = 121\nmodel = 1", "model"),
        ("like none", "rotate_degrees = 10.0", "blur = 1.0", "blur"),
        ("with a space", "patience = 5", "\"the patience\" = 5", "\"the patience\""),
        ("that is planned", "precision = \"fp32\"", "micro_batch = 4", "micro_batch"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn wrong_types_say_what_to_write() {
    let mistakes: &[Mistake] = &[
        ("a string for an integer", "epochs = 20", "epochs = \"20\"", "\"20\""),
        ("a number for an integer", "epochs = 20", "epochs = 20.0", "20.0"),
        ("a fraction for an integer", "epochs = 20", "epochs = 20.5", "20.5"),
        ("a negative integer", "epochs = 20", "epochs = -20", "-20"),
        ("a string for a number", "lr = 3e-4", "lr = \"3e-4\"", "\"3e-4\""),
        ("not a number", "lr = 3e-4", "lr = nan", "nan"),
        ("an overflow", "lr = 3e-4", "lr = 1e999", "1e999"),
        ("an integer for a string", "\"base\"", "7", "7"),
        ("a date for a string", "\"base\"", "2026-01-01", "2026-01-01"),
        ("a string for a boolean", "lr = 3e-4", "amsgrad = \"yes\"", "\"yes\""),
        ("an integer for a boolean", "lr = 3e-4", "amsgrad = 1", "1"),
        ("an integer for a pair", "[320, 320]", "320", "320"),
        ("three for a pair", "[320, 320]", "[320, 320, 1]", "[320, 320, 1]"),
        ("a string in a pair", "[320, 320]", "[320, \"x\"]", "\"x\""),
        ("a string for an array", "[\"Edema\", \"Pleural Effusion\"]", "\"Edema\"", "\"Edema\""),
        ("a string for a table", "validation = { fraction = 0.1 }", "validation = \"x\"", "\"x\""),
        ("an array for a table", "[memory]", "[[memory]]", "[[memory]]"),
        ("a table for an array of tables", "[memory]\nprecision = \"fp32\"", "[heads.x]", "x"),
        ("a number for a choice", "[heads.loss.bce]\npos_weight = \"balanced\"", "loss = 3", "3"),
        ("a number for a policy", "\"ones\"", "1", "1"),
        ("an array for a policy", "\"ones\"", "[0.5, 0.8]", "[0.5, 0.8]"),
        ("a number for weights", "\"balanced\"", "2.0", "2.0"),
        ("a string in weights", "\"balanced\"", "[1.0, \"x\"]", "\"x\""),
        ("a number for a device", "use = \"cpu\"", "use = 0", "0"),
        ("a value for settings", "[train.optimizer.adamw]\nlr = 3e-4", "optimizer.adamw = 3", "3"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn missing_keys_are_asked_for_by_name() {
    let train = "[train]\nepochs = 20\nbatch_size = 64";
    let mistakes: &[Mistake] = &[
        ("a key", "epochs = 20", "", "[train]"),
        (
            "a key in an inline table",
            "size = [320, 320], ",
            "",
            "{ channels = 1, fit = \"letterbox\" }",
        ),
        ("a key of an entry", "task = \"multiclass\"", "", "[[heads]]"),
        ("a key of a layout", "root = \"datasets/chexpert\"", "", "[data.chexpert]"),
        ("a key where the header is missing too", train, "", "train"),
        ("a choice", "[train.optimizer.adamw]\nlr = 3e-4", "", "[train]"),
        ("the model", "[model.densenet]\ndepth = 121", "", ""),
        ("a metric", "metric = \"val/findings/auroc\"", "", "[train.early_stopping]"),
        ("a choice's variant", "[model.densenet]\ndepth = 121", "[model]", "[model]"),
        ("a size", "depth = 121", "", "[model.densenet]"),
        ("two sizes", "depth = 121", "growth = 12", "[model.densenet]"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn unknown_choices_show_the_nearest_or_all() {
    let mistakes: &[Mistake] = &[
        ("a table misspelt", "optimizer.adamw", "optimizer.adamv", "adamv"),
        ("a table like none", "optimizer.adamw", "optimizer.shampoo", "shampoo"),
        (
            "a name misspelt",
            "[train.schedule.cosine]\nwarmup_epochs = 1",
            "[train.schedule]\ncosin = {}",
            "cosin",
        ),
        (
            "settings without the choice",
            "[train.schedule.cosine]",
            "[train.schedule]",
            "warmup_epochs",
        ),
        ("a word misspelt", "\"letterbox\"", "\"leterbox\"", "\"leterbox\""),
        ("a word like none", "\"letterbox\"", "\"zoom\"", "\"zoom\""),
        ("a word in an array", "views = [\"PA\", \"AP\"]", "views = [\"PA\", \"LL\"]", "\"LL\""),
        ("a task", "\"multilabel\"", "\"multi-label\"", "\"multi-label\""),
        ("a policy", "\"ones\"", "\"one\"", "\"one\""),
        ("a policy of a label", "\"ones\"", "{ Edema = \"maybe\" }", "\"maybe\""),
        ("a policy with settings", "\"ones\"", "{ smoth = [0.5, 0.8] }", "[0.5, 0.8]"),
        ("a policy without its settings", "\"ones\"", "\"smooth\"", "\"smooth\""),
        ("a policy with no settings", "\"ones\"", "{ Edema = { ones = 1 } }", "ones"),
        ("a rule for weights", "\"balanced\"", "\"balance\"", "\"balance\""),
        ("a loss", "[heads.loss.bce]", "[heads.loss.bec]", "bec"),
        ("a model", "[model.densenet]", "[model.resnet]", "resnet"),
        ("a precision that is planned", "\"fp32\"", "\"bf16\"", "\"bf16\""),
        (
            "a policy of memory that is planned",
            "precision = \"fp32\"",
            "checkpointing = \"sqrt\"",
            "\"sqrt\"",
        ),
        ("two at once", "[memory]", "[train.optimizer.sgd]\n[memory]", "sgd"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn values_out_of_range_say_the_range() {
    let mistakes: &[Mistake] = &[
        ("a run name", "\"base\"", "\"my run\"", "\"my run\""),
        ("a run name that leads elsewhere", "\"base\"", "\"../base\"", "\"../base\""),
        ("no epoch", "epochs = 20", "epochs = 0", "0"),
        ("no image in a batch", "batch_size = 64", "batch_size = 0", "0"),
        ("nothing kept", "seed = 7", "save = { keep = 0 }", "0"),
        ("a small image", "[320, 320]", "[320, 16]", "16"),
        ("a huge image", "[320, 320]", "[1000000, 320]", "1000000"),
        ("two channels", "channels = 1", "channels = 2", "2"),
        ("all for validation", "fraction = 0.1", "fraction = 1.0", "1.0"),
        ("too much rotation", "rotate_degrees = 10.0", "rotate_degrees = 360", "360"),
        ("a share above a half", "rotate_degrees = 10.0", "translate = 0.6", "0.6"),
        ("a flip above 1", "rotate_degrees = 10.0", "horizontal_flip = 50", "50"),
        ("no views", "[\"PA\", \"AP\"]", "[]", "[]"),
        ("a view twice", "[\"PA\", \"AP\"]", "[\"PA\", \"PA\"]", "\"PA\""),
        (
            "a soft label",
            "\"ones\"",
            "{ \"Pleural Effusion\" = { smooth = [0.9, 0.1] } }",
            "[0.9, 0.1]",
        ),
        ("no worker", "[data.chexpert]", "workers = 0\n[data.chexpert]", "0"),
        ("a depth", "depth = 121", "depth = 120", "120"),
        ("no blocks", "depth = 121", "growth = 8\nblocks = []\nstem = 16", "[]"),
        ("an empty block", "depth = 121", "growth = 8\nblocks = [3, 0]\nstem = 16", "0"),
        ("a compression", "depth = 121", "depth = 121\ncompression = 1.5", "1.5"),
        ("a dropout", "depth = 121", "depth = 121\ndropout = 1", "1"),
        ("a head's name", "name = \"view\"", "name = \"the/view\"", "\"the/view\""),
        ("a head's weight", "weight = 0.1", "weight = -0.1", "-0.1"),
        ("a hidden layer", "weight = 0.1", "hidden = [64, 0]", "0"),
        ("a head's dropout", "weight = 0.1", "dropout = 1.0", "1.0"),
        ("no labels", "[\"Edema\", \"Pleural Effusion\"]", "[]", "[]"),
        ("an empty label", "\"Edema\"", "\"\"", "\"\""),
        ("a learning rate", "lr = 3e-4", "lr = 0", "0"),
        ("a norm", "epochs = 20", "epochs = 20\nclip_norm = 0.0", "0.0"),
        ("an average", "epochs = 20", "epochs = 20\nema = { decay = 1.0 }", "1.0"),
        ("no patience", "patience = 5", "patience = 0", "0"),
        ("a change below 0", "patience = 5", "min_delta = -0.1", "-0.1"),
        ("a device", "\"cpu\"", "\"gpu\"", "\"gpu\""),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn contradictions_show_what_contradicts() {
    let no_layout = "[data.chexpert]\nroot = \"datasets/chexpert\"\nuncertain = \"ones\"\nviews = [\"PA\", \"AP\"]";
    let two = "[data.phantom]\nroot = \"x\"\npatients = 9\nsize = 64\n[data.augment]";
    let deep = "growth = 8\nblocks = [1, 1, 1, 1, 1, 1, 1, 1, 1]\nstem = 16";
    let multiclass = "task = \"multiclass\"\nlabels = [\"PA\", \"AP\", \"Lateral\"]";
    let mistakes: &[Mistake] = &[
        ("no layout", no_layout, "", "[data]"),
        ("two layouts", "[data.augment]", two, "[data.phantom]"),
        ("a depth and a growth", "depth = 121", "depth = 121\ngrowth = 32", "32"),
        ("more blocks than pixels", "depth = 121", deep, "320"),
        ("a batch of one", "batch_size = 64", "batch_size = 1", "1"),
        ("two heads of a name", "name = \"view\"", "name = \"findings\"", "\"findings\""),
        ("a label twice", "\"Pleural Effusion\"]", "\"Edema\"]", "\"Edema\""),
        (
            "a binary head of many",
            "\"multilabel\"",
            "\"binary\"",
            "[\"Edema\", \"Pleural Effusion\"]",
        ),
        (
            "a multiclass head of one",
            multiclass,
            "task = \"multiclass\"\nlabels = [\"PA\"]",
            "[\"PA\"]",
        ),
        (
            "a loss of another task",
            "[heads.loss.bce]\npos_weight = \"balanced\"",
            "[heads.loss.cross_entropy]",
            "[heads.loss.cross_entropy]",
        ),
        ("too few weights", "\"balanced\"", "[1.0]", "[1.0]"),
        (
            "a metric misspelt",
            "\"val/findings/auroc\"",
            "\"val/findings/auc\"",
            "\"val/findings/auc\"",
        ),
        (
            "a metric of no head",
            "\"val/findings/auroc\"",
            "\"val/finding/auroc\"",
            "\"val/finding/auroc\"",
        ),
        (
            "a metric of another task",
            "\"val/findings/auroc\"",
            "\"val/findings/rmse\"",
            "\"val/findings/rmse\"",
        ),
        ("a metric of training", "\"val/findings/auroc\"", "\"train/loss\"", "\"train/loss\""),
        (
            "a metric without its split",
            "\"val/findings/auroc\"",
            "\"findings/auroc\"",
            "\"findings/auroc\"",
        ),
        ("a metric like none", "\"val/findings/auroc\"", "\"dice\"", "\"dice\""),
        ("the wrong direction", "patience = 5", "mode = \"min\"", "\"min\""),
        ("a start after the end", "patience = 5", "start_epoch = 21", "21"),
        ("several devices", "\"cpu\"", "[\"cuda:0\", \"cuda:1\"]", "[\"cuda:0\", \"cuda:1\"]"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn wrong_overrides_are_shown_as_typed() {
    let mistakes = [
        ("train.epochz=3", "epochz"),
        ("trian.epochs=3", "trian"),
        ("train.epochs=many", "many"),
        ("train.epochs", "train.epochs"),
        ("train.epochs=", "="),
        ("=3", ""),
        ("train..epochs=3", ""),
        ("train.epochs=[1, 2", ""),
        ("train.epochs=0", "0"),
        ("train.epochs.x=3", "x"),
        ("heads[2].weight=1", "[2]"),
        ("heads.2.weight=1", "2"),
        ("heads.weight=1", "weight"),
        ("heads[x].weight=1", "[x].weight"),
        ("heads[1].weight=-1", "-1"),
        ("train.optimizer.adamq.lr=1", "adamq"),
        ("train.optimizer.sgd.betas=[0, 1]", "betas"),
        ("train.optimizer=adamq", "adamq"),
        ("train.schedule.step.gamma=\"half", ""),
        ("data.phantom.patients=100", "phantom"),
        ("data.chexpert.uncertain.\"Pleural Effusion\"=one", "one"),
        ("run.name=my run", "my run"),
        ("device.use=gpu", "gpu"),
    ];
    let mut all = String::new();
    for (flag, faulty) in mistakes {
        let error = resolve(BASE, &["run.seed=8".to_owned(), flag.to_owned()]).expect_err(flag);
        assert_helps(&error);
        assert_eq!(error.position().unwrap().faulty(), faulty, "{error}");
        assert_eq!(error.position().unwrap().file, None);
        all += &format!("{error}\n\n");
    }
    insta::assert_snapshot!(all);
}

/// The plan of the base with these overrides, as TOML.
fn overridden(flags: &[&str]) -> String {
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    resolve(BASE, &flags).unwrap_or_else(|error| panic!("{error}")).to_toml().unwrap()
}

#[test]
fn an_override_is_the_same_as_writing_it_in_the_file() {
    let pairs = [
        ("train.epochs=3", "epochs = 20", "epochs = 3"),
        ("run.name=fast", "\"base\"", "\"fast\""),
        ("run.name=\"fast\"", "\"base\"", "\"fast\""),
        ("run.name=2026", "\"base\"", "\"2026\""),
        ("run.name=1e3", "\"base\"", "\"1e3\""),
        ("data.chexpert.root=/data/chest x-rays", "datasets/chexpert", "/data/chest x-rays"),
        ("data.image.size=[64, 96]", "[320, 320]", "[64, 96]"),
        ("heads.1.weight=0.5", "weight = 0.1", "weight = 0.5"),
        ("heads[1].weight=0.5", "weight = 0.1", "weight = 0.5"),
        ("heads[0].labels[0]=Fracture", "\"Edema\"", "\"Fracture\""),
        ("train.optimizer.adamw.lr=0.1", "lr = 3e-4", "lr = 0.1"),
        ("train.optimizer.sgd.lr=0.1", "adamw]\nlr = 3e-4", "sgd]\nlr = 0.1"),
        ("train.optimizer=sgd", "adamw]\nlr = 3e-4", "sgd]"),
        ("train.optimizer={sgd={lr=0.1}}", "adamw]\nlr = 3e-4", "sgd]\nlr = 0.1"),
        ("train.schedule=constant", "cosine]\nwarmup_epochs = 1", "constant]"),
        ("heads[0].loss=focal", "[heads.loss.bce]\npos_weight = \"balanced\"", "loss = \"focal\""),
        ("data.chexpert.uncertain=zeros", "\"ones\"", "\"zeros\""),
        ("data.chexpert.uncertain.smooth=[0.1, 0.2]", "\"ones\"", "{ smooth = [0.1, 0.2] }"),
        (
            "data.chexpert.uncertain.\"Pleural Effusion\"=ones",
            "\"ones\"",
            "{ \"Pleural Effusion\" = \"ones\" }",
        ),
        (
            "data.chexpert.uncertain.Pleural Effusion=ones",
            "\"ones\"",
            "{ \"Pleural Effusion\" = \"ones\" }",
        ),
        ("train.clip_norm=1", "epochs = 20", "epochs = 20\nclip_norm = 1.0"),
        ("run.save.keep=5", "seed = 7", "seed = 7\nsave.keep = 5"),
        ("train.early_stopping.min_delta=1e-3", "patience = 5", "patience = 5\nmin_delta = 0.001"),
        ("device.use=cuda:1", "\"cpu\"", "\"cuda:1\""),
    ];
    for (flag, old, new) in pairs {
        assert_eq!(BASE.matches(old).count(), 1, "{old:?} must stand once in the base");
        let written = resolve(&BASE.replace(old, new), &[]);
        let written = written.unwrap_or_else(|error| panic!("{error}")).to_toml().unwrap();
        assert_ne!(written, overridden(&[]), "{flag} must change something");
        assert_eq!(overridden(&[flag]), written, "{flag}");
    }
}

#[test]
fn of_two_overrides_the_later_one_holds() {
    let both = overridden(&["train.optimizer.sgd.lr=0.1", "train.optimizer.adam.lr=0.2"]);
    assert_eq!(both, overridden(&["train.optimizer.adam.lr=0.2"]));
    let both = overridden(&["train.optimizer.sgd.momentum=0.9", "train.optimizer.sgd.lr=0.2"]);
    assert!(both.contains("lr = 0.2\nmomentum = 0.9"), "{both}");
}

#[test]
fn every_key_is_found_where_it_was_written() {
    let text = "run.name = 'a'\r\n[data]\r\nimage = { size = [64,\r\n  96] }\r\n[data.chexpert]\r\n\
                root = 'ä'   # ä\r\nuncertain.\"Pleural Effusion\" = 'ones'\r\n[model]\r\n\
                densenet.depth = 121\r\n[[heads]]\r\n\
                name = 'a'\r\ntask = 'binary'\r\nlabels = ['é', 'x']\r\n[[heads]]\r\n\
                labels = [\r\n  'u',\r\n  'v',\r\n]\r\nname = 'b'\r\ntask = 'multilabel'\r\n\
                loss = { bce = { pos_weight = [1, 2] } }\r\n[train]\r\nepochs = 3\r\nbatch_size = 4\r\n\
                optimizer.sgd.lr = 0.1\r\n[train.schedule.cosine]\r\n";
    let flags = ["heads[0].labels=['é']".to_owned(), "train.ema.decay=0.9".to_owned()];
    let source = read(FILE.to_owned(), text.to_owned(), &flags)
        .unwrap_or_else(|error| panic!("{error}"))
        .source;
    let expected = [
        ("run.name", 1, 12, "'a'"),
        ("run.seed", 1, 1, "run"),
        ("data", 2, 1, "[data]"),
        ("data.image.size[1]", 4, 3, "96"),
        ("data.image.fit", 3, 9, "{ size = [64,\r\n  96] }"),
        ("data.chexpert.root", 6, 8, "'ä'"),
        ("data.chexpert.uncertain.\"Pleural Effusion\"", 7, 32, "'ones'"),
        ("model.densenet.depth", 9, 18, "121"),
        ("model.densenet.growth", 9, 1, "densenet"),
        ("heads[0].task", 12, 8, "'binary'"),
        ("heads[0].weight", 10, 1, "[[heads]]"),
        ("heads[1].weight", 14, 1, "[[heads]]"),
        ("heads[1].labels[1]", 17, 3, "'v'"),
        ("heads[1].loss.bce.pos_weight[1]", 21, 35, "2"),
        ("train.optimizer.sgd.lr", 25, 20, "0.1"),
        ("train.schedule.cosine.warmup_epochs", 26, 1, "[train.schedule.cosine]"),
    ];
    for (key, line, column, faulty) in expected {
        let position = source.position(key);
        assert_eq!(
            (position.line, position.column, position.faulty()),
            (line, column, faulty),
            "{key}"
        );
        assert_eq!(position.file.as_deref(), Some(FILE));
    }
    for (key, column, faulty) in [
        ("heads[0].labels[0]", 24, "'é'"),
        ("train.ema.decay", 23, "0.9"),
        ("train.ema.x", 13, "ema"),
    ] {
        let position = source.position(key);
        assert_eq!((position.file.as_deref(), position.column), (None, column), "{key}");
        assert_eq!(position.faulty(), faulty);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.toml");
    let error = load(&missing, &[]).expect_err("is missing");
    assert!(error.to_string().contains("none.toml"), "{error}");
    let error = load(folder.path(), &[]).expect_err("is a folder");
    assert!(error.message().ends_with("is a folder"), "{error}");
    let latin = folder.path().join("latin.toml");
    std::fs::write(&latin, b"[run]\nname = \"\xe9t\xe9\"\n").unwrap();
    let error = load(&latin, &[]).expect_err("is not UTF-8");
    let position = error.position().unwrap();
    assert_eq!((position.line, position.column), (2, 9), "{error}");
}

#[test]
fn a_mark_of_byte_order_is_no_mistake() {
    resolve(&format!("\u{feff}{BASE}"), &[]).unwrap();
}

/// Every configuration in `configs/`, by name.
fn committed() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn the_committed_configurations_resolve_as_before() {
    let files = committed();
    assert!(files.len() >= 2);
    for (name, text) in files {
        let plan = resolve(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(plan.run.name, name, "a run is named after its file");
        insta::assert_snapshot!(format!("resolved_{name}"), plan.to_toml().unwrap());
    }
}

#[test]
fn the_committed_configurations_open_with_what_they_cost() {
    for (name, text) in committed() {
        for line in ["#:schema ", "# Command: ", "# Hardware: ", "# Takes: ", "# Reaches: "] {
            let head = text.lines().take_while(|line| line.starts_with('#'));
            assert!(head.into_iter().any(|one| one.starts_with(line)), "{name}: {line}");
        }
    }
}

#[test]
fn a_resolved_configuration_resolves_to_itself() {
    let more = [
        "train.optimizer=lion\ntrain.schedule.plateau.metric=val/findings/auprc\ntrain.clip_norm=1",
        "train.optimizer=rmsprop\ntrain.schedule=one_cycle\ntrain.ema.decay=0.99\ndata.workers=3",
        "heads[0].loss=focal\nheads[1].hidden=[64, 32]\nmodel.densenet.depth=161\nrun.seed=9",
        "data.chexpert.uncertain={Edema='zeros', default={smooth=[0.1, 0.3]}}\ndevice.use=cuda:3",
        "heads[1].task=regression\nheads[1].loss=huber\ntrain.best_metric=val/view/mae",
        "heads[0].loss.bce.pos_weight=[1, 1.5]\nmodel.densenet.norm=group\ntrain.batch_size=1",
    ];
    let bases = committed().into_iter().map(|(_, text)| text).chain([BASE.to_owned()]);
    for base in bases {
        for flags in std::iter::once("").chain(more) {
            let flags: Vec<String> = flags.lines().map(str::to_owned).collect();
            let Ok(plan) = resolve(&base, &flags) else {
                assert_ne!(base, BASE, "{flags:?}: {:?}", resolve(&base, &flags));
                continue;
            };
            let text = plan.to_toml().unwrap();
            let again = resolve(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(again, plan);
            assert_eq!(again.to_toml().unwrap(), text);
        }
    }
}

#[test]
fn the_committed_schema_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("trainer.schema.json");
    let fresh = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    if std::env::var_os("REFRESH").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "trainer.schema.json is stale; refresh it with: REFRESH=1 cargo test --test config schema"
    );
}

/// One of every kind of TOML value, and values that some keys want.
const VALUES: [&str; 20] = [
    "0",
    "1",
    "-1",
    "0.5",
    "1e300",
    "nan",
    "true",
    "\"\"",
    "\"none\"",
    "\"val/loss\"",
    "[]",
    "[1]",
    "[64, 64]",
    "[0.1, 0.2]",
    "[\"PA\"]",
    "[[1]]",
    "{}",
    "{ smooth = [0.1, 0.2] }",
    "1979-05-27",
    "9223372036854775807",
];

#[test]
fn every_key_takes_or_refuses_every_kind_of_value() {
    let (mut taken, mut refused) = (0, 0);
    for (_, text) in committed() {
        let full = resolve(&text, &[]).unwrap().to_toml().unwrap();
        let lines: Vec<&str> = full.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some((key, _)) = line.split_once(" = ") else { continue };
            for value in VALUES {
                let changed = format!("{key} = {value}");
                let mut lines = lines.clone();
                lines[number] = &changed;
                match resolve(&lines.join("\n"), &[]) {
                    Ok(plan) => {
                        taken += 1;
                        let text = plan.to_toml().unwrap();
                        assert_eq!(resolve(&text, &[]).unwrap(), plan);
                    }
                    Err(error) => {
                        refused += 1;
                        assert_helps(&error);
                    }
                }
            }
        }
    }
    assert!(taken > 100 && refused > 500, "{taken} taken, {refused} refused");
}

/// Text that is likely to reach deep into the checks.
fn fragment() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ".",
        ",",
        "\"",
        "'",
        "\n",
        "\r\n",
        "#",
        " ",
        "-",
        "heads",
        "[[heads]]\n",
        "[train]\n",
        "[train.optimizer.sgd]\n",
        "loss",
        "bce = {}",
        "ä",
        "𝄞",
        "\u{0}",
        "1e400",
        "-0",
        "0x10",
        "inf",
        "smooth",
        "\"\"\"",
        "a.b.c = 1\n",
        "\u{2028}",
    ]);
    let value = prop::sample::select(VALUES.to_vec());
    prop_oneof![words.prop_map(str::to_owned), value.prop_map(str::to_owned), ".{0,3}"]
}

/// Where a change begins and how long the replaced text is, both in thousandths of the file.
fn change() -> impl Strategy<Value = (usize, usize, String)> {
    (0usize..1000, prop_oneof![Just(0usize), 0usize..30, 0usize..1000], fragment())
}

fn changed(text: &str, (start, length, new): &(usize, usize, String)) -> String {
    let characters: Vec<char> = text.chars().collect();
    let start = start * characters.len() / 1000;
    let end = (start + length * characters.len() / 1000).min(characters.len());
    let before: String = characters[..start].iter().collect();
    let after: String = characters[end..].iter().collect();
    format!("{before}{new}{after}")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_changed_file_resolves_or_says_where_it_is_wrong(
        changes in prop::collection::vec(change(), 1..4)
    ) {
        let text = changes.iter().fold(BASE.to_owned(), |text, change| changed(&text, change));
        match resolve(&text, &[]) {
            Ok(plan) => prop_assert_eq!(&resolve(&plan.to_toml().unwrap(), &[]).unwrap(), &plan),
            Err(error) => assert_helps(&error),
        }
    }

    #[test]
    fn an_override_resolves_or_says_where_it_is_wrong(
        key in prop::sample::select(vec![
            "", "run", "run.name", "data", "data.image.size[0]", "data.chexpert.uncertain",
            "data.chexpert.uncertain.x", "model", "model.densenet", "heads", "heads[0]", "heads.1.loss",
            "heads[0].loss.bce.pos_weight", "train.optimizer", "train.optimizer.sgd", "train.schedule",
            "train.early_stopping", "memory", "train.ema.decay", "device.use",
        ]),
        middle in fragment(),
        equals in prop::bool::weighted(0.9),
        value in prop::collection::vec(fragment(), 0..3),
    ) {
        let flags = [format!("{key}={}", value.concat()),
            format!("{key}{middle}{}{}", if equals { "=" } else { "" }, value.concat())];
        for flag in flags {
            match resolve(BASE, std::slice::from_ref(&flag)) {
                Ok(plan) => prop_assert_eq!(&resolve(&plan.to_toml().unwrap(), &[]).unwrap(), &plan),
                Err(error) => assert_helps(&error),
            }
        }
    }
}
