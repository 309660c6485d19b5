//! `--set`.

use crate::{BASE, assert_helps, resolve};

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
        ("model.int=w.pth", "int"),
        ("model.densnet.depth=121", "densnet"),
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
fn the_weights_to_start_from_stay_beside_whatever_network_is_set() {
    let [init, resnet] = ["model.init=w.pth", "model.resnet.depth=50"];
    let written = BASE.replace(
        "[model.densenet]\ndepth = 121",
        "[model]\ninit = \"w.pth\"\n[model.resnet]\ndepth = 50",
    );
    assert_ne!(written, BASE);
    let written = resolve(&written, &[]).unwrap_or_else(|error| panic!("{error}"));
    let written = written.to_toml().unwrap();
    assert_eq!(overridden(&[init, resnet]), written);
    assert_eq!(overridden(&[resnet, init]), written);
    assert_eq!(overridden(&["model={resnet={depth=50}}", init]), written);
    assert_eq!(overridden(&["model={init=\"w.pth\",resnet={depth=50}}"]), written);
    assert!(written.contains("[model]\ninit = \"w.pth\"\n\n[model.resnet]\n"), "{written}");
    // Its name alone is a network too.
    let file = BASE.replace("[model.densenet]\ndepth = 121\n", "");
    let file = file.replace("[run]", "model = \"resnet\"\n[run]");
    let flags = [init, resnet].map(str::to_owned);
    let named = resolve(&file, &flags).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(named.to_toml().unwrap(), written);
}

#[test]
fn of_two_overrides_the_later_one_holds() {
    let both = overridden(&["train.optimizer.sgd.lr=0.1", "train.optimizer.adam.lr=0.2"]);
    assert_eq!(both, overridden(&["train.optimizer.adam.lr=0.2"]));
    let both = overridden(&["train.optimizer.sgd.momentum=0.9", "train.optimizer.sgd.lr=0.2"]);
    assert!(both.contains("lr = 0.2\nmomentum = 0.9"), "{both}");
}
