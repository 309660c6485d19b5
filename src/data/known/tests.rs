use std::fs;

use super::*;
use crate::data::open;

/// Opens a table with a column for each of these labels, all its rows for both lists alike.
fn opened(rows: &[&str], head: &str, settings: &str) -> (Splits, Vec<HeadConfig>) {
    let folder = tempfile::tempdir().expect("is made");
    let header = "image,split,view,a,b,c,d,e";
    let of = |list: &'static str| {
        let row = move |(number, row): (usize, &&str)| format!("{list}{number}.png,{list},{row}");
        rows.iter().enumerate().map(row)
    };
    let text: Vec<String> =
        [header.to_owned()].into_iter().chain(of("train")).chain(of("valid")).collect();
    fs::write(folder.path().join("t.csv"), text.join("\n")).expect("is written");
    let table = folder.path().join("t.csv");
    let data = format!(
        "image = {{ size = [32, 32] }}\n[csv]\ntable = {table:?}\nimage = 'image'\n\
         split = 'split'\n{settings}"
    );
    let heads = vec![toml::from_str(head).expect("a head")];
    let config = toml::from_str(&data).expect("settings");
    (open(&config, &heads, 1, crate::data::untold).expect("opens"), heads)
}

const FINDINGS: &str = "name = 'findings'\ntask = 'multilabel'\nlabels = ['a', 'b', 'c', 'd', 'e']";

fn told(rows: &[&str], head: &str) -> String {
    let (splits, heads) = opened(rows, head, "");
    match check_known(&splits, &heads) {
        Ok(warnings) => warnings.join("\n"),
        Err(error) => format!("{error}\n= help: {}", error.help().expect("says what to do")),
    }
}

#[test]
fn labels_that_both_lists_know_in_both_classes_are_not_worth_a_word() {
    assert_eq!(told(&["PA,1,0,1,0,1", "AP,0,1,0,1,0"], FINDINGS), "");
    let soft = ["PA,0.5,0,1,0,1", "AP,0.49,1,0,1,0"];
    assert_eq!(told(&soft, FINDINGS), "");
}

#[test]
fn labels_with_one_class_or_none_are_named_and_many_are_counted() {
    insta::assert_snapshot!(told(&["PA,1,0,1,,0", "AP,1,0,0,,"], FINDINGS));
    insta::assert_snapshot!(told(&["PA,1,0,1,1,0"], FINDINGS));
}

#[test]
fn a_head_without_a_known_label_is_refused_unless_it_is_not_trained() {
    insta::assert_snapshot!(told(&["PA,,,,,", "AP,,,,,"], FINDINGS));
    insta::assert_snapshot!(told(&["PA,,,,,", "AP,,,,,"], &format!("{FINDINGS}\nweight = 0.0")));
}

#[test]
fn uncertain_labels_are_known_where_their_policy_makes_them_so() {
    let rows = ["PA,-1,-1,-1,-1,-1", "AP,-1,-1,-1,-1,-1"];
    let (splits, heads) = opened(&rows, FINDINGS, "uncertain = 'ignore'");
    check_known(&splits, &heads).expect_err("nothing is known");
    let (splits, heads) = opened(&rows, FINDINGS, "uncertain = 'ones'");
    insta::assert_snapshot!(check_known(&splits, &heads).expect("are known").join("\n"));
}

#[test]
fn classes_that_never_occur_are_named() {
    let view = "name = 'view'\ntask = 'multiclass'\nlabels = ['PA', 'AP', 'Lateral']";
    insta::assert_snapshot!(told(&["PA,1,,,,", "AP,1,,,,"], view));
    insta::assert_snapshot!(told(&["PA,1,,,,", "PA,1,,,,"], view));
}

#[test]
fn numbers_need_only_be_known() {
    let age = "name = 'age'\ntask = 'regression'\nlabels = ['a', 'b']";
    insta::assert_snapshot!(told(&["PA,50,,,,", "AP,50,,,,"], age));
}
