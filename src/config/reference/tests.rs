use super::*;

#[test]
fn every_key_has_an_example_or_a_section_of_its_own() {
    let shape = Shape::of_config();
    let sections = sections(&shape);
    let mut without = Vec::new();
    for Section { place, content, .. } in &sections {
        let (Content::Keys(keys) | Content::Choice(_, keys)) = content;
        for key in *keys {
            let place = place.key(&key.name);
            let section =
                parts(&key.shape).iter().any(|one| find(&sections, one, &place).is_some());
            if example(key).is_none() && !section {
                without.push(place.to_string());
            }
        }
    }
    assert_eq!(without, [""; 0], "give `#[schemars(example = …)]`");
}

#[test]
fn every_key_of_the_schema_is_in_the_reference_with_its_default() {
    let schema = crate::config::schema();
    let text = reference().replace("\n  ", " ");
    let lines: Vec<&str> = text.lines().collect();
    let tables = schema["definitions"].as_object().into_iter().flatten().map(|(_, one)| one);
    let mut keys = 0;
    for table in tables.chain([&schema]) {
        for (name, property) in table["properties"].as_object().into_iter().flatten() {
            let shown = lines.iter().filter(|line| line.starts_with(&format!("- **`{name}`**: ")));
            let is_table = property.get("default").is_none_or(|default| default.is_object());
            assert!(shown.clone().count() > 0, "{name}");
            if !is_table {
                let default = toml::Value::try_from(&property["default"]).expect("is TOML");
                let read = |line: &&str| {
                    let shown = line.split_once(", default `")?.1.split_once('`')?.0;
                    let table: toml::Table = format!("x = {shown}").parse().ok()?;
                    Some(table["x"].clone())
                };
                let mut defaults = shown.clone().filter_map(read);
                assert!(defaults.any(|shown| shown == default), "{name} = {default}");
            }
            keys += 1;
        }
    }
    assert!(keys > 150, "{keys}");
}

#[test]
fn every_link_within_the_page_leads_to_a_heading() {
    let text = reference();
    let headings: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' '))
        .map(anchor)
        .collect();
    let mut unique = headings.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), headings.len(), "two headings have one anchor");
    let links: Vec<&str> =
        text.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 80, "{}", links.len());
    for link in links {
        assert!(headings.iter().any(|heading| heading == link), "{link}");
    }
}

#[test]
fn lines_are_broken_outside_of_code() {
    let text = format!("- word {} `{}` word", "a".repeat(80), "code with spaces ".repeat(3).trim());
    let shown = filled(&text, "  ");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[1], "  `code with spaces code with spaces code with spaces` word");
}
