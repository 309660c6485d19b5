//! Keys and where they were written; files that cannot be read.

use trainer::config::{load, read};

use crate::{BASE, FILE, resolve};

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
