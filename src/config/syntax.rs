//! What the TOML parser says, in words that help.

use std::ops::Range;

/// A syntax error: what is wrong, what to write instead, and where.
pub(super) struct Explained {
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) span: Range<usize>,
}

/// The parser's message about `span` of `text`, explained.
pub(super) fn explain(message: &str, text: &str, span: Range<usize>) -> Explained {
    let bad = text.get(span.clone()).unwrap_or_default();
    let said = |message: &str, help: &str| Explained {
        message: message.to_owned(),
        help: Some(help.to_owned()),
        span: span.clone(),
    };
    let unquoted =
        message.starts_with("invalid boolean") || message.starts_with("string values must be");
    match message {
        _ if unquoted => value(bad, said),
        "duplicate key" => said(
            &format!("`{bad}` is given twice"),
            "keep one of the two; a table may be opened only once",
        ),
        _ if message.ends_with("with a dotted key") => {
            said(&format!("`{bad}` has a value already"), "a key is a value or a table: keep one")
        }
        _ if message.contains("recurs") => {
            said("nested too deeply", "no key of a configuration needs so many levels")
        }
        _ if message.starts_with("key with no value") => match colon(text, &span) {
            Some(at) => Explained {
                span: at..at + 1,
                ..said("not TOML: `:` after a key", "between a key and its value stands `=`")
            },
            None => said("not TOML: a key without a value", "write `key = value`"),
        },
        _ => said(&format!("not TOML: {message}"), advice(message)),
    }
}

fn value(bad: &str, said: impl Fn(&str, &str) -> Explained) -> Explained {
    let message = format!("not TOML: `{bad}`");
    let first_is_number =
        bad.split_whitespace().next().is_some_and(|word| word.parse::<f64>().is_ok());
    match bad.to_lowercase().as_str() {
        "" => said("not TOML: the value is missing", "write a value after `=`"),
        "true" => said(&message, "write `true`, in small letters"),
        "false" => said(&message, "write `false`, in small letters"),
        _ if first_is_number => {
            said(&message, "a key has one value; several stand in an array: `[1, 2]`")
        }
        _ => said(&message, "a string stands in quotes: `\"…\"`"),
    }
}

fn advice(message: &str) -> &'static str {
    let advice = [
        ("string", "a string begins and ends with the same quote, on one line: `\"…\"`"),
        ("array", "an array is `[1, 2]`: commas between its entries, `]` at its end"),
        ("inline table", "an inline table is `{ key = value, key = value }`"),
        ("unclosed table", "a table's header is `[name]`, alone on its line"),
        ("unquoted key", "a key is letters, digits, `_` and `-`, or stands in quotes"),
    ];
    let found = advice.iter().find(|(word, _)| message.contains(word));
    found.map_or("a line is `key = value`, `[table]`, or `# a comment`", |(_, advice)| advice)
}

/// The colon that stands where `=` should, as in YAML and JSON.
fn colon(text: &str, span: &Range<usize>) -> Option<usize> {
    let start = text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next()?;
    let colon = line.find(':')?;
    let key = line[..colon].trim();
    let is_key = key.chars().all(|c| c.is_alphanumeric() || "._-\"'".contains(c));
    (is_key && !key.is_empty()).then_some(start + colon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    #[test]
    fn every_syntax_error_has_advice_and_stays_in_the_text() {
        let texts = [
            "a = [1,\n",
            "a = tru\n",
            "a = fast\n",
            "a = \"x\n",
            "[a\nb=1",
            "a=1\na=2",
            "a = 1 2",
            "a = 01",
            "a",
            "= 1",
            "a = { b = 1,, }",
            "a = 'x'\n[a.b]\n",
            "a = \"\\q\"",
            "[[",
            "a = ,",
            "a = 1.",
            "a = 1_",
            "\u{1}=3",
            "a: 3",
            "\"ä\": 3\n",
            "a = 3 # \u{7f}",
            "a =",
        ];
        for text in texts {
            let error = DeTable::parse(text).expect_err(text);
            let span = error.span().expect("has a place");
            let explained = explain(error.message(), text, span);
            assert!(explained.help.is_some_and(|help| !help.is_empty()), "{text}");
            assert!(explained.span.end <= text.len(), "{text}");
        }
    }

    #[test]
    fn a_colon_is_shown_itself() {
        let text = "a = 1\n  b_c: 3\n";
        let error = DeTable::parse(text).expect_err("is YAML");
        let explained = explain(error.message(), text, error.span().expect("has a place"));
        assert_eq!(&text[explained.span.clone()], ":");
        assert_eq!(explained.span.start, 11);
    }
}
