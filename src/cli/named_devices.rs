//! Every GPU of this machine, where a configuration asks for all of them.

use crate::build::{Found, find_devices};
use crate::config::DeviceUse;

/// Puts the GPUs of this machine that can be used in place of `"all"`. Where there is none, it stays.
pub(super) fn name_devices(device: &mut DeviceUse) {
    if *device == DeviceUse::One("all".to_owned()) {
        name_cards(device, &find_devices());
    }
}

fn name_cards(device: &mut DeviceUse, found: &Found) {
    let cards = found.cards.as_deref().unwrap_or_default().iter();
    let usable = cards.filter(|card| card.details.is_ok());
    let mut names: Vec<String> = usable.map(|card| format!("cuda:{}", card.index)).collect();
    match names.len() {
        0 => {}
        1 => *device = DeviceUse::One(names.remove(0)),
        _ => *device = DeviceUse::Several(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Card, CardDetails, NoCuda};

    fn card(index: usize) -> Card {
        let details = CardDetails {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory: 85_000_000_000,
            free: 84_400_000_000,
            compute_capability: (9, 0),
        };
        Card { index, details: Ok(details) }
    }

    #[test]
    fn all_are_the_cards_that_open() {
        let named = |cards| {
            let mut device = DeviceUse::One("all".to_owned());
            name_cards(&mut device, &Found { cpu_threads: Some(4), cards });
            device
        };
        let broken = Card { index: 1, details: Err("in use".to_owned()) };
        let several = named(Ok(vec![card(0), broken.clone(), card(2)]));
        assert_eq!(several, DeviceUse::Several(vec!["cuda:0".to_owned(), "cuda:2".to_owned()]));
        assert_eq!(named(Ok(vec![broken, card(2)])), DeviceUse::One("cuda:2".to_owned()));
        assert_eq!(named(Err(NoCuda::NoDriver)), DeviceUse::One("all".to_owned()));
    }
}
