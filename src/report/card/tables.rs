//! What a model is worth, as tables in Markdown.

use std::fmt;

use serde_json::Value;

use crate::evaluate::MEASURES;
use crate::report::HeadLabels;
use crate::report::evaluation::figure;

/// A table in Markdown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self { heads: heads.iter().map(|head| (*head).to_owned()).collect(), rows: Vec::new() }
    }

    pub fn add<T: Into<String>>(&mut self, row: impl IntoIterator<Item = T>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    /// Nothing where there is no row.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
            format!("| {} |", cells.join(" | "))
        };
        writeln!(formatter, "{}", line(&self.heads))?;
        writeln!(formatter, "|{}", "---|".repeat(self.heads.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(formatter, "{}", line(row)))
    }
}

/// Text that neither ends a cell nor begins anything of Markdown or HTML.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' => plain.push(' '),
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '|' | '`' | '*' | '[' | ']' | '\\' => plain.extend(['\\', letter]),
            _ => plain.push(letter),
        }
    }
    plain
}

/// `value (low to high)` of an estimate, the value under `key`; or why there is none.
pub fn estimate(of: &Value, key: &str) -> String {
    let Some(value) = of[key].as_f64() else {
        return match of["undefined"].as_str() {
            Some(why) => format!("undefined: {why}"),
            None => String::new(),
        };
    };
    match of["low"].as_f64().zip(of["high"].as_f64()) {
        Some((low, high)) => format!("{} ({} to {})", figure(value), figure(low), figure(high)),
        None => figure(value),
    }
}

/// The measures of a head, label by label, and its decisions.
pub fn of_head(head: &HeadLabels, found: &Value) -> Vec<String> {
    let name = plain(&head.name);
    let measures: Vec<_> = MEASURES.iter().filter(|of| found[of.key].is_object()).collect();
    let titles: Vec<&str> = measures.iter().map(|measure| measure.title).collect();
    let mut table = Table::new(&[&["label"], &titles[..]].concat());
    let cells = |of: &dyn Fn(&Value) -> String| -> Vec<String> {
        measures.iter().map(|measure| of(&found[measure.key])).collect()
    };
    table.add(["mean".to_owned()].into_iter().chain(cells(&|of| estimate(of, "mean"))));
    for label in &head.labels {
        let of_label = cells(&|of| estimate(&of["labels"][label], "value"));
        table.add([label.clone()].into_iter().chain(of_label));
    }
    let mut tables = vec![format!("`{name}`:\n\n{table}")];
    if found["accuracy"].is_object() {
        let accuracy = estimate(&found["accuracy"], "value");
        tables
            .push(format!("`{name}`: the share of images given their own class is {accuracy}.\n"));
    }
    let decisions = decisions(head, &found["operating_points"]).to_string();
    if !decisions.is_empty() {
        tables.push(format!("`{name}`, decisions:\n\n{decisions}"));
    }
    tables
}

fn decisions(head: &HeadLabels, points: &Value) -> Table {
    let titles = ["label", "point", "threshold", "sensitivity", "specificity", "PPV", "NPV", "F1"];
    let mut table = Table::new(&titles);
    for label in &head.labels {
        for (criterion, point) in points[label].as_object().into_iter().flatten() {
            let mut row = vec![label.clone(), criterion.clone(), threshold(point)];
            let measures = ["sensitivity", "specificity", "ppv", "npv", "f1"];
            row.extend(measures.map(|measure| estimate(&point[measure], "value")));
            table.add(row);
        }
    }
    table
}

/// A threshold of an evaluation, or why there is none.
fn threshold(point: &Value) -> String {
    match (point["threshold"].as_f64(), point["undefined"].as_str()) {
        (Some(threshold), _) => format!("{threshold:.4}"),
        (None, why) => format!("none: {}", why.unwrap_or_default()),
    }
}

/// A head's AUROC (of numbers the MAE) in each group of images.
pub fn of_groups(head: &HeadLabels, by: &str, groups: &[Value]) -> String {
    let key = |group: &Value| {
        ["auroc", "mae"].into_iter().find(|key| group["heads"][&head.name][key].is_object())
    };
    let Some(key) = groups.iter().find_map(key) else { return String::new() };
    let title = |group: &Value| {
        let name = group["group"].as_str().unwrap_or_default();
        format!("{name} (n={})", group["images"])
    };
    let titles: Vec<String> = groups.iter().map(title).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = Table::new(&[&["label"], &titles[..]].concat());
    let measure = |group: &Value| group["heads"][&head.name][key].clone();
    let means = groups.iter().map(|group| estimate(&measure(group), "mean"));
    table.add(["mean".to_owned()].into_iter().chain(means));
    for label in &head.labels {
        let of_label =
            groups.iter().map(|group| estimate(&measure(group)["labels"][label], "value"));
        table.add([label.clone()].into_iter().chain(of_label));
    }
    let (name, by, key) = (plain(&head.name), plain(by), key.to_uppercase());
    format!("`{name}`, {key} by {by}:\n\n{table}")
}
