//! Reads pages back.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node, ParsingOptions};

/// Parses a page, whose tags must be balanced as in XML, and looks at what holds for every page.
pub fn parsed(text: &str) -> Document<'_> {
    parsed_with_links(text, |_| false)
}

/// The same of a page that may lead to others.
pub fn parsed_with_links(text: &str, may_lead_to: impl Fn(&str) -> bool) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let page = Document::parse_with_options(text, options).expect("tags are balanced");
    let elements = || page.descendants().filter(Node::is_element);
    let mut ids = BTreeSet::new();
    for id in elements().filter_map(|node| node.attribute("id")) {
        assert!(ids.insert(id), "the id {id} is there twice");
    }
    for node in elements() {
        let name = node.tag_name().name();
        assert!(!["script", "iframe", "object"].contains(&name), "<{name}>");
        if name == "img" {
            let source = node.attribute("src").unwrap_or_default();
            assert!(source.starts_with("data:image/jpeg;base64,"), "{source}");
            assert!(node.attribute("alt").is_some_and(|told| !told.is_empty()));
            continue;
        }
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            assert!(!key.starts_with("on"), "{key}={value}");
            match key {
                "href" | "src" => {
                    let within = value.strip_prefix('#').is_some_and(|id| ids.contains(id));
                    let leads = name == "a" && may_lead_to(value);
                    assert!(within || leads || value == "data:,", "{key}={value}");
                }
                "aria-labelledby" => assert!(ids.contains(value), "{key}={value}"),
                "style" => assert!(value.starts_with("--share: "), "{key}={value}"),
                _ => {}
            }
        }
        if name == "svg" {
            let title = node.first_element_child().filter(|child| child.has_tag_name("title"));
            assert!(title.and_then(|title| title.text()).is_some_and(|title| !title.is_empty()));
        }
        if name == "table" {
            assert!(node.first_element_child().is_some_and(|first| first.has_tag_name("caption")));
        }
    }
    let style = elements().find(|node| node.has_tag_name("style")).and_then(|node| node.text());
    assert!(style.is_some_and(|style| !style.contains("url(") && !style.contains("@import")));
    page
}

/// The text of a part of a page.
pub fn words(node: Node) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

/// The tables of a page by their captions; of several with the same the first.
pub fn tables(page: &Document) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut found = BTreeMap::new();
    for table in page.descendants().filter(|node| node.has_tag_name("table")) {
        let caption = table.first_element_child().map(words).unwrap_or_default();
        let rows = table.descendants().filter(|node| node.has_tag_name("tr"));
        let cells = |row: Node| row.children().filter(Node::is_element).map(words).collect();
        found.entry(caption).or_insert(rows.map(cells).collect());
    }
    found
}
