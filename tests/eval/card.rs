//! `MODEL.md`: its figures are those of the evaluations.

use super::*;

/// A copy of the run `tiny`, which a test may change.
fn copied(trained: &Trained) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).expect("is made");
        for entry in fs::read_dir(from).expect("lists") {
            let entry = entry.expect("is read").path();
            let to = to.join(entry.file_name().expect("a name"));
            match entry.is_dir() {
                true => copy(&entry, &to),
                false => drop(fs::copy(&entry, to).expect("is copied")),
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    copy(&trained.path("tiny"), &folder.path().join("tiny"));
    folder
}

/// The rows of the table below the line `title`, by their first cell.
fn table<'a>(card: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let (_, below) = card.split_once(&format!("\n{title}\n\n")).expect(title);
    let rows = below.lines().take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The numbers of `value (low to high)`.
fn numbers(cell: &str) -> Vec<f64> {
    let words = cell.split([' ', '(', ')']).filter(|word| !word.is_empty() && *word != "to");
    words.map(|word| word.parse().expect("a number")).collect()
}

/// Compares the row of each label with what `evaluation.json` has; how many cells have a value.
fn compared(card: &str, found: &Value) -> usize {
    let rows = table(card, "`findings`:");
    let keys = [("AUROC", "auroc"), ("AUPRC", "auprc"), ("Brier score", "brier")];
    let mut compared = 0;
    for row in &rows[2..] {
        for (title, key) in keys {
            let place = rows[0].iter().position(|head| *head == title).expect(title);
            let table = &found["heads"]["findings"][key];
            let (of, value) = match row[0] {
                "mean" => (table, &table["mean"]),
                label => (&table["labels"][label], &table["labels"][label]["value"]),
            };
            let Some(value) = value.as_f64() else {
                assert!(row[place].starts_with("undefined: "), "{row:?}");
                continue;
            };
            let expected = [Some(value), of["low"].as_f64(), of["high"].as_f64()];
            let expected: Vec<f64> = expected.into_iter().flatten().collect();
            let told = numbers(row[place]);
            assert_eq!(told.len(), expected.len(), "{row:?}");
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 5.1e-4;
            assert!(told.iter().zip(&expected).all(near), "{row:?} and {expected:?}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn the_card_of_a_run_has_the_figures_of_its_evaluation() {
    let trained = Trained::runs();
    let (found, _) = trained.evaluated("card", &[]);
    let first = fs::read_to_string(trained.path("tiny/MODEL.md")).expect("training writes it");
    assert!(compared(&first, &found) >= 3 * 3);
    let folder = copied(trained);
    let run = folder.path().join("tiny");
    let run = run.to_str().expect("UTF-8");
    let file = folder.path().join("tiny/MODEL.md");
    let words = "Triage of phantoms.";
    let (before, after) = first.split_once("<!-- author:use -->\n").expect("a place");
    let after = &after[after.find("<!-- /author:use").expect("its end")..];
    fs::write(&file, format!("{before}<!-- author:use -->\n{words}\n{after}")).expect("is written");
    trained.told(&["eval", run, "--split", "all", "--by", "sex"]);
    trained.told(&["eval", run, "--by", "sex"]);
    let second = fs::read_to_string(&file).expect("is there");
    assert!(second.contains(words) && second.contains("AUROC by sex"), "{second}");
    assert!(
        second.contains("### The list `validation`: ") && second.contains("### The list `all`: ")
    );
    assert_eq!(compared(&second, &found), compared(&first, &found));
    assert!(!second.contains("patient0"), "no patient and no image is named");
    fs::write(&file, second.replace("## Limitations", "## Limits")).expect("is written");
    let told = trained.told(&["eval", run]);
    assert!(told.contains("warning: the model card is not up to date"), "{told}");
}

#[test]
fn the_card_counts_labels_as_the_lists_have_them() {
    let trained = Trained::runs();
    let card = fs::read_to_string(trained.path("tiny/MODEL.md")).expect("is written");
    let saved = trained.saved("validation.csv");
    let outputs = PredictionTable::from_csv(&saved, &heads(), Path::new("validation.csv"));
    let outputs = outputs.expect("reads");
    let counted: Vec<&str> =
        card.lines().filter(|line| line.starts_with("| findings | ")).collect();
    for (place, label) in ["Cardiomegaly", "Pleural Effusion", "Support Devices"].iter().enumerate()
    {
        let targets = &outputs.heads["findings"].targets;
        let of = |values: &[f32]| values.iter().skip(place).step_by(3).sum::<f32>();
        let known = targets.values.iter().zip(&targets.mask).map(|(value, mask)| value * mask);
        let (positives, known) = (of(&known.collect::<Vec<f32>>()), of(&targets.mask));
        let expected = format!("| {positives} of {known} |");
        let row = counted.iter().find(|row| row.contains(&format!("| {label} | "))).expect(label);
        assert!(row.ends_with(&expected), "{row}: {expected}");
    }
}
