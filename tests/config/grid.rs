//! `--grid`.

use trainer::config::{ConfigError, Grid, read_grid};

use crate::{BASE, FILE, assert_helps};

fn grid(flags: &[&str]) -> Result<Grid, ConfigError> {
    let grids: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    read_grid(FILE.to_owned(), BASE.to_owned(), &["run.seed=8".to_owned()], &grids)
}

fn names(flags: &[&str]) -> Vec<String> {
    let grid = grid(flags).unwrap_or_else(|error| panic!("{error}"));
    grid.combinations.iter().map(|one| one.name()).collect()
}

#[test]
fn grids_make_the_product_in_the_order_given() {
    assert_eq!(
        names(&["train.batch_size=8,16", "train.schedule=constant,{step={every_epochs=3}}"]),
        [
            "train.batch_size=8, train.schedule=constant",
            "train.batch_size=8, train.schedule={step={every_epochs=3}}",
            "train.batch_size=16, train.schedule=constant",
            "train.batch_size=16, train.schedule={step={every_epochs=3}}",
        ]
    );
}

#[test]
fn quotes_that_a_shell_took_away_may_be_missing() {
    let values = |flag: &str| -> Vec<toml::Value> {
        let grid = grid(&[flag]).unwrap_or_else(|error| panic!("{error}"));
        grid.combinations.into_iter().map(|one| one.set[0].1.clone()).collect()
    };
    let with = values(r#"memory.precision="fp32","bf16""#);
    assert_eq!(with, values("memory.precision=fp32, bf16,"));
    assert_eq!(with, ["fp32", "bf16"].map(toml::Value::from));
    assert_eq!(values("run.name=1,2"), ["1", "2"].map(toml::Value::from));
}

#[test]
fn every_combination_is_the_configuration_with_its_values() {
    let grid = grid(&["heads[1].weight=0.5,0.25", "train.optimizer.sgd.lr=0.1,0.2"]);
    let grid = grid.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(grid.keys, ["heads[1].weight", "train.optimizer.sgd.lr"]);
    for one in &grid.combinations {
        let mut overrides = vec!["run.seed=8".to_owned()];
        overrides.extend(one.overrides.clone());
        let written = crate::resolve(BASE, &overrides).unwrap().to_toml().unwrap();
        let plan = trainer::plan::plan(one.loaded.config.clone()).unwrap();
        assert_eq!(plan.to_toml().unwrap(), written, "{}", one.name());
    }
    assert_eq!(grid.rest["run"]["seed"].as_integer(), Some(8));
    assert_eq!(grid.rest["heads"][0].get("name"), Some(&"findings".into()));
    assert_eq!(grid.rest["heads"][1].get("weight"), None);
    assert!(BASE.contains("weight = 0.1"));
}

#[test]
fn wrong_grids_are_shown_as_typed() {
    let mistakes: [(&[&str], &str); 13] = [
        (&["train.epochz=3,4"], "epochz"),
        (&["train.epochs=3,many,5"], "many"),
        (&["train.epochs=3,0"], "0"),
        (&["train.epochs"], "train.epochs"),
        (&["train.epochs="], "="),
        (&["train.epochs=3,,4"], ","),
        (&["train.epochs=3,4,3"], "3"),
        (&["run.name=\"a\",\"a b\""], "\"a b\""),
        (&["heads[0].labels=[\"A\"],[1,"], ""),
        (&["heads.x.weight=1,2"], "x"),
        (&["train.epochs=3,4", "train.epochs=5"], "train.epochs"),
        (&["train.optimizer.sgd.lr=1,2", "train.optimizer=adam"], "train.optimizer"),
        (&["train.epochs=3,4", "train.optimizer.adamw.lr=1,two"], "two"),
    ];
    let mut all = String::new();
    for (flags, faulty) in mistakes {
        let error = match grid(flags) {
            Err(error) => error,
            Ok(grid) => {
                let plan = |one: &trainer::config::Combination| {
                    let loaded = one.loaded.clone();
                    let fault = trainer::plan::plan(loaded.config).err()?;
                    Some(one.error(loaded.source.error(fault)))
                };
                grid.combinations.iter().find_map(plan).unwrap_or_else(|| panic!("{flags:?}"))
            }
        };
        assert_helps(&error);
        assert_eq!(error.position().unwrap().faulty(), faulty, "{error}");
        assert_eq!(error.position().unwrap().file, None);
        all += &format!("{error}\n\n");
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_product_too_large_to_be_meant_is_refused() {
    let hundred: Vec<String> = (1..=101).map(|number| number.to_string()).collect();
    let hundred = hundred.join(",");
    let error = grid(&[&format!("train.epochs={hundred}"), &format!("train.batch_size={hundred}")]);
    let error = error.expect_err("10201 combinations");
    assert!(error.message().contains("10000 combinations"), "{error}");
}
