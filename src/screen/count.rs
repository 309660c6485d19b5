//! Numbers with what they count.

/// The number and what it counts: `1 epoch`, `1,680 steps`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", thousands(count), if count == 1 { one } else { many })
}

/// The number with a comma after every three digits from the right.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let told = [0, 1, 2, 1680].map(|count| counted(count, "step", "steps"));
        assert_eq!(told, ["0 steps", "1 step", "2 steps", "1,680 steps"]);
    }

    #[test]
    fn digits_are_grouped_by_three() {
        for (number, text) in [(999, "999"), (1000, "1,000"), (6_956_298, "6,956,298")] {
            assert_eq!(thousands(number), text);
        }
    }
}
