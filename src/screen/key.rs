//! Keys of TOML.

/// A key as it must be written: in quotes unless it is letters, digits, `_` and `-` only.
pub fn written(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else if key.contains(['"', '\\']) && !key.contains('\'') {
        format!("'{key}'")
    } else {
        format!("\"{key}\"")
    }
}
