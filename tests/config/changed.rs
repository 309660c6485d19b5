//! Configurations changed at random or exhaustively: each resolves, or is told where it is wrong.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::resolved::committed;
use crate::{BASE, assert_helps, resolve};

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
    let mut tried = HashSet::new();
    for (_, text) in committed() {
        let full = resolve(&text, &[]).unwrap().to_toml().unwrap();
        let lines: Vec<&str> = full.lines().collect();
        let mut table = String::new();
        for (number, line) in lines.iter().enumerate() {
            if line.starts_with('[') {
                table = (*line).to_owned();
            }
            let Some((key, _)) = line.split_once(" = ") else { continue };
            if !tried.insert((table.clone(), key.to_owned())) {
                continue;
            }
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
