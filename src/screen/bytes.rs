//! Bytes as a person reads them.

use std::fmt;

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Their number in MiB, for columns and axes of one unit.
    pub fn mebibytes(self) -> f64 {
        self.0 as f64 / f64::from(1 << 20)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut amount = self.0 as f64;
        let mut name = "B";
        for unit in ["KiB", "MiB", "GiB"] {
            // What would print as 1024 of a unit is 1 of the next.
            if amount < 1023.5 {
                break;
            }
            (amount, name) = (amount / 1024.0, unit);
        }
        formatter.pad(&match amount {
            _ if name == "B" => format!("{} B", self.0),
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
            ((1 << 20) - 1, "1.00 MiB"),
            (80 << 30, "80.0 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
