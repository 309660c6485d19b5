//! Bytes as a person reads them.

use std::fmt;

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(f64, &str); 3] =
    [((1_u64 << 30) as f64, "GiB"), ((1_u64 << 20) as f64, "MiB"), (1024.0, "KiB")];

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let Some((unit, name)) = UNITS.iter().find(|(unit, _)| bytes >= *unit) else {
            return formatter.pad(&format!("{} B", self.0));
        };
        let amount = bytes / unit;
        formatter.pad(&match amount {
            100.0.. => format!("{amount:.0} {name}"),
            10.0.. => format!("{amount:.1} {name}"),
            _ => format!("{amount:.2} {name}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        for (bytes, text) in [
            (12, "12 B"),
            (3 << 10, "3.00 KiB"),
            (54_321_000, "51.8 MiB"),
            (218_000_000, "208 MiB"),
            (80 << 30, "80.0 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
