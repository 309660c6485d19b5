//! Wrong files and what they are told.

use crate::{BASE, FILE, assert_helps, resolve};

/// A mistake: its name, what it replaces in the base, by what, and the text that must be shown as
/// faulty (empty where something is missing).
type Mistake<'a> = (&'a str, &'a str, &'a str, &'a str);

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

const EPOCHS: &str = "epochs = 20";
const TWO_OFFLOADS: &str = "offload = \"none\"\noffload = \"host\"";

#[test]
fn syntax_errors_show_their_place() {
    let mistakes: &[Mistake] = &[
        ("a string without quotes", "\"base\"", "base", "base"),
        ("a string that is not closed", "\"base\"", "\"base", ""),
        ("a header that is not closed", "[train]", "[train", ""),
        ("an array that is not closed", "[\"PA\", \"AP\"]", "[\"PA\", \"AP\"", ""),
        ("a key twice", "epochs = 20", "epochs = 20\nepochs = 30", "epochs"),
        ("a table twice", "[memory]", "[train]", "train"),
        (
            "a choice by name and as a table",
            EPOCHS,
            "epochs = 20\noptimizer = \"sgd\"",
            "optimizer",
        ),
        (
            "the same choice by name and as a table",
            EPOCHS,
            "epochs = 20\noptimizer = \"adamw\"",
            "optimizer",
        ),
        (
            "a choice as an inline table and as a table",
            EPOCHS,
            "epochs = 20\nschedule = { step = { gamma = 0.5 } }",
            "schedule",
        ),
        (
            "a choice as a table and by name",
            "[train.optimizer.adamw]\nlr = 3e-4",
            "[memory.offload.host]\n[memory]\noffload = \"none\"",
            "offload",
        ),
        (
            "a choice by name and its table without a variant",
            "[memory]\nprecision = \"fp32\"",
            "[memory]\noffload = \"none\"\n[memory.offload]\ndisk = { path = \"/tmp\" }",
            "offload",
        ),
        (
            "a choice of a head",
            "labels = [\"PA\", \"AP\", \"Lateral\"]",
            "labels = [\"PA\", \"AP\"]\nloss = \"cross_entropy\"\n[heads.loss.focal]",
            "loss",
        ),
        (
            "a choice with a dotted key",
            "precision = \"fp32\"",
            "checkpointing = \"every\"\ncheckpointing.sequential.segments = 2",
            "checkpointing",
        ),
        ("a model by name and as a table", "[run]\n", "model = \"resnet\"\n[run]\n", "model"),
        ("a choice by name twice", "precision = \"fp32\"", TWO_OFFLOADS, "offload"),
        ("a table that is a value already", "[run]\n", "memory = 3\n[memory.x]\n[run]\n", "memory"),
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
        ("like none", "rotate_degrees = 10.0", "posterize = 1.0", "posterize"),
        ("with a space", "patience = 5", "\"the patience\" = 5", "\"the patience\""),
        ("of memory", "precision = \"fp32\"", "micro_bach = 4", "micro_bach"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn wrong_types_say_what_to_write() {
    let mistakes: &[Mistake] = &[
        ("a string for an integer", "epochs = 20", "epochs = \"20\"", "\"20\""),
        ("integers for strings", "[\"PA\", \"AP\", \"Lateral\"]", "[\"PA\", 1, 2]", "1"),
        ("strings for integers", "[320, 320]", "[\"320\", 320]", "\"320\""),
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
        ("a scale", "\"letterbox\"", "\"crop\", normalize = \"zscore\"", "\"zscore\""),
        ("a device by a table", "\"cpu\"", "{ gpu = 0 }", "{ gpu = 0 }"),
        ("a cache", "validation = { fraction = 0.1 }", "cache = \"ssd\"", "\"ssd\""),
        (
            "a sampler without its settings",
            "validation = { fraction = 0.1 }",
            "sampler = \"weighted\"",
            "\"weighted\"",
        ),
        ("a micro-batch", "precision = \"fp32\"", "micro_batch = \"half\"", "\"half\""),
        ("weights", "\"balanced\"", "\"equal\"", "\"equal\""),
        ("a policy", "\"ones\"", "\"one\"", "\"one\""),
        ("a policy of a label", "\"ones\"", "{ Edema = \"maybe\" }", "\"maybe\""),
        ("a policy with settings", "\"ones\"", "{ smoth = [0.5, 0.8] }", "[0.5, 0.8]"),
        ("a policy without its settings", "\"ones\"", "\"smooth\"", "\"smooth\""),
        ("a policy with no settings", "\"ones\"", "{ Edema = { ones = 1 } }", "ones"),
        ("a rule for weights", "\"balanced\"", "\"balance\"", "\"balance\""),
        ("a loss", "[heads.loss.bce]", "[heads.loss.bec]", "bec"),
        ("a model", "[model.densenet]", "[model.vgg]", "vgg"),
        ("a precision", "\"fp32\"", "\"fp8\"", "\"fp8\""),
        ("a policy of memory", "precision = \"fp32\"", "checkpointing = \"sqroot\"", "\"sqroot\""),
        ("two at once", "[memory]", "[train.optimizer.sgd]\n[memory]", "sgd"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

const BASIC_1001: &str = "[model.resnet]\nform = \"cifar\"\nblock = \"basic\"\ndepth = 1001";
const KINDLESS: &str = "[model.resnet]\nblocks = [3, 4]";

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
        ("one fold", "fraction = 0.1", "folds = 1", "1"),
        ("a fold that there is not", "fraction = 0.1", "folds = 5, fold = 6", "6"),
        ("a fold of none", "fraction = 0.1", "fold = 2", "2"),
        ("folds and a share", "fraction = 0.1", "folds = 5, fraction = 0.1", "0.1"),
        ("too much rotation", "rotate_degrees = 10.0", "rotate_degrees = 360", "360"),
        ("a share above a half", "rotate_degrees = 10.0", "translate = 0.6", "0.6"),
        ("a flip above 1", "rotate_degrees = 10.0", "horizontal_flip = 50", "50"),
        ("a brightness", "rotate_degrees = 10.0", "brightness = 1.5", "1.5"),
        (
            "a crop",
            "rotate_degrees = 10.0",
            "random_resized_crop = { area = [0.5, 0.1] }",
            "[0.5, 0.1]",
        ),
        ("no tiles", "rotate_degrees = 10.0", "clahe = { tiles = [8, 0] }", "0"),
        ("a level", "rotate_degrees = 10.0", "random_erasing = { value = 255 }", "255"),
        ("a blend", "rotate_degrees = 10.0", "mixup = -1", "-1"),
        ("a deviation of 0", "\"letterbox\"", "\"crop\", normalize = { mean = 0.5, std = 0 }", "0"),
        (
            "percentiles in the wrong order",
            "\"letterbox\"",
            "\"crop\", normalize = { percentile = [99, 1] }",
            "[99, 1]",
        ),
        ("no scale", "\"letterbox\"", "\"crop\", normalize = {}", "{}"),
        ("no views", "[\"PA\", \"AP\"]", "[]", "[]"),
        ("a view twice", "[\"PA\", \"AP\"]", "[\"PA\", \"PA\"]", "\"PA\""),
        (
            "a soft label",
            "\"ones\"",
            "{ \"Pleural Effusion\" = { smooth = [0.9, 0.1] } }",
            "[0.9, 0.1]",
        ),
        (
            "a sampler of a head that is not there",
            "validation = { fraction = 0.1 }",
            "validation = { fraction = 0.1 }
sampler = { balanced = { head = \"view2\" } }",
            "\"view2\"",
        ),
        ("a depth", "depth = 121", "depth = 120", "120"),
        ("a depth of other blocks", "[model.densenet]\ndepth = 121", BASIC_1001, "1001"),
        ("blocks without their kind", "[model.densenet]\ndepth = 121", KINDLESS, "[3, 4]"),
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
        ("a learning rate that is far too large", "lr = 3e-4", "lr = 300", "300"),
        ("a weight decay that is far too large", "lr = 3e-4", "lr = 0.1\nweight_decay = 30", "30"),
        ("a norm", "epochs = 20", "epochs = 20\nclip_norm = 0.0", "0.0"),
        ("an average", "epochs = 20", "epochs = 20\nema = { decay = 1.0 }", "1.0"),
        ("no patience", "patience = 5", "patience = 0", "0"),
        ("a change below 0", "patience = 5", "min_delta = -0.1", "-0.1"),
        ("a device", "\"cpu\"", "\"gpu\"", "\"gpu\""),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

/// PyTorch's rule: more than one number of each channel, over images and pixels.
#[test]
fn one_image_is_refused_where_batch_norm_has_one_number_of_a_channel() {
    let small = BASE.replace("[320, 320]", "[32, 32]");
    assert_ne!(small, BASE);
    let mut all = String::new();
    for (set, faulty) in [
        (["train.batch_size=1", "memory.precision=fp32"], "1"),
        (["train.batch_size=64", "memory.micro_batch=1"], "1"),
        (["train.batch_size=65", "memory.micro_batch=64"], "64"),
    ] {
        let set = set.map(str::to_owned);
        let error = resolve(&small, &set).expect_err("is refused");
        assert_helps(&error);
        assert_eq!(error.position().unwrap().faulty(), faulty, "{error}");
        all += &format!("{error}\n\n");
        let group = [&set[..], &["model.densenet.norm=group".to_owned()]].concat();
        for (text, set) in [(BASE, &set[..]), (&small, &group)] {
            resolve(text, set).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    insta::assert_snapshot!(all);
}

const SCALE_TO_LAYOUT: &str = "channels = 1, fit = \"letterbox\" }
validation = { fraction = 0.1 }

[data.chexpert]
root = \"datasets/chexpert\"
uncertain = \"ones\"
views = [\"PA\", \"AP\"]";

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
        (
            "a mean without a deviation",
            "\"letterbox\"",
            "\"crop\", normalize = { mean = 0.5 }",
            "0.5",
        ),
        (
            "means of more channels",
            "\"letterbox\"",
            "\"crop\", normalize = { mean = [0.5, 0.4], std = 0.2 }",
            "[0.5, 0.4]",
        ),
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
        (
            "a precision that the CPU has not",
            "precision = \"fp32\"",
            "precision = \"tf32\"",
            "\"tf32\"",
        ),
        (
            "an optimizer that divides by 0 in fp16",
            "precision = \"fp32\"",
            "precision = \"half\"",
            "[train.optimizer.adamw]",
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
        (
            "ImageNet's scale for more channels",
            SCALE_TO_LAYOUT,
            "channels = 4, normalize = \"imagenet\" }\n[data.arrays]\nimages = \"i.npy\"\n\
             targets = { findings = \"f.npy\", view = \"v.npy\" }",
            "\"imagenet\"",
        ),
        ("a device twice", "\"cpu\"", "[\"cuda:0\", \"cuda:0\"]", "[\"cuda:0\", \"cuda:0\"]"),
        ("a GPU and the CPU", "\"cpu\"", "[\"cuda:0\", \"cpu\"]", "[\"cuda:0\", \"cpu\"]"),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

#[test]
fn faults_of_sources_show_their_place() {
    let layout = "[data.chexpert]\nroot = \"datasets/chexpert\"\nuncertain = \"ones\"\nviews = [\"PA\", \"AP\"]";
    let chexpert = |settings: &str| {
        format!("[[data.sources]]\nchexpert = {{ root = \"a\" }}\n[[data.sources]]\n{settings}")
    };
    let sources: Vec<(&str, String, &str)> = vec![
        ("a source without a data set", chexpert("heads = [\"view\"]"), "[[data.sources]]"),
        (
            "a source with two",
            chexpert("nih = { root = \"b\" }\nmura = { root = \"c\" }"),
            "{ root = \"c\" }",
        ),
        (
            "a data set beside the sources",
            chexpert("nih = { root = \"b\" }\n[data.mimic]\nroot = \"c\""),
            "[data.mimic]",
        ),
        ("an empty folder", chexpert("nih = { root = \"\" }"), "\"\""),
        (
            "a view twice",
            chexpert("chexpert = { root = \"b\", views = [\"AP\", \"AP\"] }"),
            "\"AP\"",
        ),
        (
            "no lateral view",
            chexpert("nih = { root = \"b\", views = [\"Lateral\"] }"),
            "\"Lateral\"",
        ),
        (
            "a soft label",
            chexpert(
                "mimic = { root = \"b\", uncertain = { \"Pleural Effusion\" = { smooth = [0.9, 0.1] } } }",
            ),
            "[0.9, 0.1]",
        ),
        (
            "a policy for no finding",
            chexpert("mimic = { root = \"b\", uncertain = { Edma = \"ones\" } }"),
            "Edma",
        ),
        (
            "a name for no label",
            chexpert("labels = { \"Lung Opacty\" = \"Infiltration\" }\nnih = { root = \"b\" }"),
            "\"Lung Opacty\"",
        ),
        (
            "a column for no label",
            chexpert("csv = { table = \"t.csv\", image = \"i\", columns = { views = \"x\" } }"),
            "views",
        ),
        (
            "a head that there is not",
            chexpert("heads = [\"finding\"]\nnih = { root = \"b\" }"),
            "\"finding\"",
        ),
        (
            "a label that the source has not",
            chexpert("labels = { \"Pleural Effusion\" = \"Efusion\" }\nnih = { root = \"b\" }"),
            "\"Efusion\"",
        ),
        ("a body part", chexpert("mura = { root = \"b\", parts = [\"XR_WRST\"] }"), "\"XR_WRST\""),
    ];
    let mistakes: Vec<Mistake> =
        sources.iter().map(|(name, new, faulty)| (*name, layout, new.as_str(), *faulty)).collect();
    insta::assert_snapshot!(messages(&mistakes));
}

#[test]
fn faults_of_the_split_show_their_place() {
    let mistakes: &[Mistake] = &[
        ("a list that there is not", "fraction = 0.1", "list = \"test\"", "\"test\""),
        (
            "a share and a list",
            "fraction = 0.1",
            "fraction = 0.1, list = \"validation\"",
            "\"validation\"",
        ),
    ];
    insta::assert_snapshot!(messages(mistakes));
}

const LAYERS: &str = "[model.sequential]
layers = [
    { conv = { channels = 8, kernel = 3, stride = 2 } },
    \"relu\",
    { branches = { join = \"concat\", of = [[], [{ conv = { channels = 4, kernel = 1 } }]] } },
    \"global_pool\",
    { linear = { features = 10 } },
]";

#[test]
fn layers_that_are_wrong_show_their_own_place() {
    let base = BASE.replace("[model.densenet]\ndepth = 121", LAYERS);
    resolve(&base, &[]).unwrap();
    let mistakes: &[Mistake] = &[
        ("an unknown layer", "\"relu\"", "\"rellu\"", "\"rellu\""),
        ("an unknown layer with settings", "linear =", "liner =", "liner"),
        (
            "an unknown layer in a branch",
            "[{ conv = { channels = 4",
            "[{ cov = { channels = 4",
            "cov",
        ),
        ("a misspelt key in a branch", "kernel = 1", "kernal = 1", "kernal"),
        ("a missing setting", "{ linear = { features = 10 } }", "\"linear\"", "\"linear\""),
        ("a linear layer on a map", "    \"global_pool\",\n", "", "{ features = 10 }"),
        ("a kernel that is too large", "kernel = 3", "kernel = 400", "400"),
        ("a kernel of nothing", "kernel = 3", "kernel = 0, padding = 1", "0"),
        ("a padding as wide as the kernel", "kernel = 3", "kernel = 3, padding = 3", "3"),
        (
            "branches that do not fit together",
            "kernel = 1 }",
            "kernel = 1, stride = 2 }",
            "[{ conv = { channels = 4, kernel = 1, stride = 2 } }]",
        ),
        (
            "an end in a map",
            "    \"global_pool\",\n    { linear = { features = 10 } },\n",
            "    \"sigmoid\",\n",
            "\"sigmoid\"",
        ),
    ];
    let mut all = String::new();
    for (name, old, new, faulty) in mistakes {
        assert_eq!(base.matches(old).count(), 1, "{name}: {old:?} must stand once in the base");
        let error = resolve(&base.replace(old, new), &[]).expect_err(name);
        assert_helps(&error);
        assert_eq!(error.position().unwrap().faulty(), *faulty, "{name}\n{error}");
        all += &format!("# {name}\n\n{error}\n\n");
    }
    insta::assert_snapshot!(all);
}

#[test]
fn direct_heads_must_fit_the_network() {
    let layers = LAYERS.replace("features = 10", "features = 2");
    let base = BASE.replace("[model.densenet]\ndepth = 121", &layers);
    let direct = |lines: &str| {
        base.replace("task = \"multilabel\"", &format!("task = \"multilabel\"\n{lines}"))
    };
    resolve(&direct("direct = true"), &[]).unwrap();
    let wrong = [
        (direct("direct = true\nhidden = [4]"), "[4]"),
        (direct("direct = true\ndropout = 0.5"), "0.5"),
        (direct("direct = true").replace("features = 2", "features = 3"), "true"),
    ];
    for (text, faulty) in wrong {
        let error = resolve(&text, &[]).expect_err(faulty);
        assert_helps(&error);
        assert_eq!(error.position().unwrap().faulty(), faulty, "{error}");
    }
}

#[test]
fn memory_that_fits_nothing_shows_its_place() {
    let precision = "precision = \"fp32\"";
    let segments = "[memory.checkpointing.sequential]\nsegments = 0";
    let after = "[memory.checkpointing.manual]\nafter = [\"denseblock1\", \"denseblok2\"]";
    let mistakes: &[Mistake] = &[
        ("no images at once", precision, "micro_batch = 0", "0"),
        ("a word for a number", precision, "micro_batch = \"automatic\"", "\"automatic\""),
        ("a number without a unit", precision, "budget = \"10\"", "\"10\""),
        ("more than there is", precision, "budget = \"120%\"", "\"120%\""),
        ("no segments", precision, segments, "0"),
        ("a stage that is not there", precision, after, "\"denseblok2\""),
        ("a disk without a path", precision, "offload = \"disk\"", "\"disk\""),
        ("an empty path", precision, "offload = { disk = { path = \"\" } }", "\"\""),
    ];
    insta::assert_snapshot!(messages(mistakes));
}
