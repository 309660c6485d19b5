//! The parts of a model card that are its author's.
//!
//! They stand between two lines that name them. A card that is written again keeps them; its last line
//! holds a hash of all else, so that nobody's words are lost who wrote in another place.

use std::collections::BTreeMap;

/// What asks for the author's words, by the name of the place.
const PLACES: [(&str, &str); 7] = [
    (
        "metadata",
        "# To be filled in by the author, such as\n# license: apache-2.0\n# language: en\n# datasets: [owner/name]",
    ),
    (
        "details",
        "> **To be filled in by the author:** who developed the model, its version and date, its licence, how to cite \
         it, and where to send questions.",
    ),
    (
        "use",
        "> **To be filled in by the author:** the intended uses and users, and the uses that are out of scope.",
    ),
    (
        "data",
        "> **To be filled in by the author:** where, when and how the images were taken, who was left out, how labels \
         were made and by whom, and under which consent or waiver.",
    ),
    (
        "limitations",
        "> **To be filled in by the author:** factors that the model was not tested on (groups of people, devices, \
         hospitals, views), and what users should do about them.",
    ),
    (
        "ethics",
        "> **To be filled in by the author:** risks and harms, and what was done against them.",
    ),
    (
        "claim",
        "> **To be filled in by the author:** the items that the table leaves to the author, a line for each, such as\n\
         > `- Item 5: retrospective.` The table then points here.",
    ),
];

/// The beginning of the last line.
const SEAL: &str = "<!-- written by trainer: ";

/// What stands in each of the author's places, with the lines around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    pub metadata: String,
    pub details: String,
    pub r#use: String,
    pub data: String,
    pub limitations: String,
    pub ethics: String,
    pub claim: String,
}

impl Blocks {
    /// With the words of the author in `old`, and requests for them where there are none.
    pub fn new(old: Option<&str>) -> Self {
        let words = old.map(author).unwrap_or_default();
        let of = |name: &str| {
            let asked = PLACES.iter().find(|(place, _)| *place == name).map(|(_, asked)| *asked);
            let text = words.get(name).map(String::as_str).or(asked).unwrap_or_default();
            let (begin, end) = lines(name);
            format!("{begin}\n{text}\n{end}")
        };
        Self {
            metadata: of("metadata"),
            details: of("details"),
            r#use: of("use"),
            data: of("data"),
            limitations: of("limitations"),
            ethics: of("ethics"),
            claim: of("claim"),
        }
    }
}

/// The lines around the place of this name: comments of YAML above the text, else of Markdown.
fn lines(name: &str) -> (String, String) {
    match name {
        "metadata" => (format!("# author:{name}"), format!("# /author:{name}")),
        _ => (format!("<!-- author:{name} -->"), format!("<!-- /author:{name} -->")),
    }
}

/// The words in each place of `card` that is whole.
fn author(card: &str) -> BTreeMap<&'static str, String> {
    parts(card).into_iter().filter_map(|(place, text)| Some((place?, text))).collect()
}

/// The words in `card` that are the author's own, by the names of their places.
pub fn written(card: Option<&str>) -> BTreeMap<&'static str, String> {
    let mut words = card.map(author).unwrap_or_default();
    words.retain(|name, text| !text.trim().is_empty() && !PLACES.contains(&(*name, text.as_str())));
    words
}

/// `card` cut into what the program wrote (`None`) and the words in each whole place.
fn parts(card: &str) -> Vec<(Option<&'static str>, String)> {
    let mut parts = Vec::new();
    let mut rest = card;
    for (name, _) in PLACES {
        let (begin, end) = lines(name);
        let (begin, end) = (format!("{begin}\n"), format!("\n{end}\n"));
        let found = rest.split_once(&begin).and_then(|(before, after)| {
            // An empty place has no line between its two.
            let (words, after) = format!("\n{after}").split_once(&end).map(|(words, after)| {
                (words.strip_prefix('\n').unwrap_or(words).to_owned(), after.len())
            })?;
            Some((before, words, &rest[rest.len() - after..]))
        });
        let Some((before, words, after)) = found else { continue };
        parts.push((None, before.to_owned()));
        parts.push((Some(name), words));
        rest = after;
    }
    parts.push((None, rest.to_owned()));
    parts
}

/// `card` with its last line.
pub fn sealed(card: &str) -> String {
    let card = card.trim_end();
    format!("{card}\n\n{SEAL}{} -->\n", seal(&format!("{card}\n")))
}

/// Whether `card` is as it was written but for the words of the author.
pub fn is_untouched(card: &str) -> bool {
    let card = card.replace("\r\n", "\n");
    let Some((text, last)) = card.trim_end().rsplit_once(SEAL) else { return false };
    let text = text.trim_end();
    last.strip_suffix(" -->") == Some(&seal(&format!("{text}\n")))
}

/// A hash of all but the words of the author.
fn seal(card: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    for (place, text) in parts(card) {
        hasher.update(place.unwrap_or(text.as_str()).as_bytes());
        hasher.update(b"\0");
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(old: Option<&str>, figure: &str) -> String {
        let Blocks { metadata, details, r#use, data, limitations, ethics, claim } =
            Blocks::new(old);
        let blocks = [metadata, details, r#use, data, limitations, ethics, claim].join("\n\n");
        sealed(&format!("---\n{blocks}\n\nAUROC {figure}\n"))
    }

    #[test]
    fn the_words_of_the_author_stay_when_all_else_is_written_again() {
        let first = card(None, "0.7");
        assert!(is_untouched(&first));
        assert_eq!(first.matches("To be filled in by the author").count(), 7);
        let asked = PLACES[2].1;
        let words = "Research only.\n\n## Not for patients\n| a | b |";
        let edited = first.replace(asked, words);
        assert!(edited != first && is_untouched(&edited));
        assert!(is_untouched(&edited.replace('\n', "\r\n")), "saved by an editor of Windows");
        let second = card(Some(&edited), "0.8");
        assert!(second.contains(words) && second.contains("AUROC 0.8") && is_untouched(&second));
        let emptied = first.replace(&format!("{asked}\n"), "");
        assert!(is_untouched(&emptied));
        assert_eq!(author(&card(Some(&emptied), "0.8"))["use"], "");
    }

    #[test]
    fn a_card_that_was_changed_elsewhere_is_known() {
        let first = card(None, "0.7");
        for changed in [
            first.replace("0.7", "0.9"),
            first.replace("<!-- author:use -->\n", ""),
            first.replace("<!-- /author:use -->", "<!-- -->"),
            format!("{first}\nMore.\n"),
            "my own card".to_owned(),
            String::new(),
        ] {
            assert!(changed != first && !is_untouched(&changed), "{changed}");
        }
    }
}
