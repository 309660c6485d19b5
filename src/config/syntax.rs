//! What the TOML parser says, in words that help.

use std::ops::Range;

/// The message for a syntax error and what to do about it.
pub(super) fn explain(message: &str, text: &str, span: &Range<usize>) -> (String, Option<String>) {
    let bad = text.get(span.clone()).unwrap_or_default();
    let line = text[span.start.min(text.len())..].lines().next().unwrap_or_default();
    let help = |help: &str| Some(help.to_owned());
    if message.starts_with("invalid boolean") && bad.eq_ignore_ascii_case("true") {
        return (format!("not TOML: `{bad}`"), help("write `true` in small letters"));
    }
    if message.starts_with("invalid boolean") && bad.eq_ignore_ascii_case("false") {
        return (format!("not TOML: `{bad}`"), help("write `false` in small letters"));
    }
    if message.starts_with("invalid boolean") || message.starts_with("string values must be quoted")
    {
        return (format!("not TOML: `{bad}`"), help("a string stands in quotes: `\"…\"`"));
    }
    if message == "duplicate key" {
        let message = format!("`{bad}` is given twice");
        return (message, help("keep one of the two; a table may be opened only once"));
    }
    if message.contains("recurs") {
        return ("nested too deeply".to_owned(), None);
    }
    if message.starts_with("key with no value") {
        let help = match line.trim_start().chars().next() {
            Some(':') => help("between a key and its value stands `=`, not `:`"),
            _ => help("write `key = value`"),
        };
        return ("not TOML: a key without `= value`".to_owned(), help);
    }
    (format!("not TOML: {message}"), None)
}
