//! What settings of `[data.augment]` cannot be.

use std::ops::RangeInclusive;

use super::super::config::AugmentConfig;
use crate::fault::{Fault, fault};

/// Refuses numbers of `[data.augment]` that are out of range.
///
/// # Errors
/// The first fault found.
pub fn check(config: &AugmentConfig) -> Result<(), Fault> {
    let number = |key, value, range: RangeInclusive<f64>, help| within(key, value, range, help);
    let share = "a share from 0 to 0.5";
    let strength = "a number from 0 to 1, such as 0.2";
    number("rotate_degrees", config.rotate_degrees, 0.0..=180.0, "degrees from 0 to 180")?;
    number("translate", config.translate, 0.0..=0.5, share)?;
    number("scale", config.scale, 0.0..=0.5, share)?;
    number("shear_degrees", config.shear_degrees, 0.0..=45.0, "degrees from 0 to 45")?;
    number("horizontal_flip", config.horizontal_flip, 0.0..=1.0, PROBABILITY)?;
    number("brightness", config.brightness, 0.0..=1.0, strength)?;
    number("contrast", config.contrast, 0.0..=1.0, strength)?;
    number("gamma", config.gamma, 0.0..=1.0, strength)?;
    number("noise", config.noise, 0.0..=1.0, "a number from 0 to 1, such as 0.05")?;
    number("blur", config.blur, 0.0..=10.0, "pixels from 0 to 10, such as 1.0")?;
    let beta = "a number from 0 (never) to 100, such as 0.2";
    number("mixup", config.mixup, 0.0..=100.0, beta)?;
    number("cutmix", config.cutmix, 0.0..=100.0, beta)?;
    if let Some(crop) = &config.random_resized_crop {
        areas("random_resized_crop", crop.area)?;
        ratios("random_resized_crop", crop.ratio)?;
    }
    if let Some(clahe) = &config.clahe {
        within("clahe.probability", clahe.probability, 0.0..=1.0, PROBABILITY)?;
        let slope = "a slope from 1 to 256, such as 2.0";
        within("clahe.clip_limit", clahe.clip_limit, 1.0..=256.0, slope)?;
        if let Some(entry) = clahe.tiles.iter().position(|count| !(1..=64).contains(count)) {
            let message = format!("an image cannot have {} tiles a side", clahe.tiles[entry]);
            let help = "write two numbers from 1 to 64, down and across: `tiles = [8, 8]`";
            return Err(at(&format!("clahe.tiles[{entry}]"), message, help));
        }
    }
    if let Some(erasing) = &config.random_erasing {
        within("random_erasing.probability", erasing.probability, 0.0..=1.0, PROBABILITY)?;
        areas("random_erasing", erasing.area)?;
        ratios("random_erasing", erasing.ratio)?;
        let level = "a level from 0 (black) to 1 (white)";
        within("random_erasing.value", erasing.value, 0.0..=1.0, level)?;
    }
    Ok(())
}

const PROBABILITY: &str = "a probability from 0 to 1";

fn within(key: &str, value: f64, range: RangeInclusive<f64>, help: &str) -> Result<(), Fault> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let message = format!("`{last}` is out of range: {value}");
    match range.contains(&value) {
        true => Ok(()),
        false => Err(at(key, message, &format!("write {help}"))),
    }
}

fn areas(table: &str, [low, high]: [f64; 2]) -> Result<(), Fault> {
    if 0.0 < low && low <= high && high <= 1.0 {
        return Ok(());
    }
    let message = format!("no share of the image lies between {low} and {high}");
    let help = "write two numbers above 0 and up to 1, the smaller first: `area = [0.1, 1.0]`";
    Err(at(&format!("{table}.area"), message, help))
}

fn ratios(table: &str, [low, high]: [f64; 2]) -> Result<(), Fault> {
    if 0.01 <= low && low <= high && high <= 100.0 {
        return Ok(());
    }
    let message = format!("no ratio of width to height lies between {low} and {high}");
    let help = "write two numbers from 0.01 to 100, the smaller first: `ratio = [0.75, 1.33]`";
    Err(at(&format!("{table}.ratio"), message, help))
}

/// A fault at a key of `[data.augment]`.
fn at(key: &str, message: String, help: &str) -> Fault {
    fault(format!("data.augment.{key}"), message, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key at fault and the message.
    fn refused(text: &str) -> (String, String) {
        let config = toml::from_str(text).expect("reads");
        let fault = check(&config).expect_err(text);
        assert!(fault.help.is_some_and(|help| help.starts_with("write ")), "{text}");
        (fault.key, fault.message)
    }

    #[test]
    fn what_the_defaults_and_the_documents_say_is_accepted() {
        for text in [
            "",
            "rotate_degrees = 180\nshear_degrees = 45\nblur = 10\nmixup = 0.2\ncutmix = 1",
            "random_resized_crop = {}\nclahe = {}\nrandom_erasing = {}",
            "random_resized_crop = { area = [1, 1], ratio = [1, 1] }",
        ] {
            let config = toml::from_str(text).expect("reads");
            check(&config).expect(text);
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_at_their_key() {
        for (key, above) in [
            ("rotate_degrees", 180.1),
            ("translate", 0.51),
            ("scale", 0.51),
            ("shear_degrees", 45.1),
            ("horizontal_flip", 1.01),
            ("brightness", 1.01),
            ("contrast", 1.01),
            ("gamma", 1.01),
            ("noise", 1.01),
            ("blur", 10.1),
            ("mixup", 101.0),
            ("cutmix", 101.0),
        ] {
            for value in [above, -0.01, f64::NAN, f64::INFINITY] {
                let (at, message) = refused(&format!("{key} = {value:?}").to_lowercase());
                assert_eq!(at, format!("data.augment.{key}"));
                let value = format!("{value}");
                assert_eq!(message, format!("`{key}` is out of range: {value}"));
            }
        }
    }

    #[test]
    fn tables_are_checked_key_by_key() {
        for (text, at) in [
            ("random_resized_crop = { area = [0, 1] }", "random_resized_crop.area"),
            ("random_resized_crop = { area = [0.5, 0.4] }", "random_resized_crop.area"),
            ("random_resized_crop = { ratio = [0, 1] }", "random_resized_crop.ratio"),
            ("clahe = { probability = 1.5 }", "clahe.probability"),
            ("clahe = { clip_limit = 0.5 }", "clahe.clip_limit"),
            ("clahe = { tiles = [8, 0] }", "clahe.tiles[1]"),
            ("random_erasing = { probability = -1 }", "random_erasing.probability"),
            ("random_erasing = { area = [0.1, 1.1] }", "random_erasing.area"),
            ("random_erasing = { ratio = [3, 2] }", "random_erasing.ratio"),
            ("random_erasing = { value = 255 }", "random_erasing.value"),
        ] {
            assert_eq!(refused(text).0, format!("data.augment.{at}"));
        }
    }
}
