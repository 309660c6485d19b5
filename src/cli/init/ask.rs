//! The questions, on the terminal. Answers are read from standard input, and all is shown on standard error.

use std::io::{IsTerminal, stderr, stdin};
use std::path::PathBuf;

use dialoguer::Input;

use super::{BUDGET, proposed};
use crate::data::{Found, Offer};
use crate::screen::say;

/// Whether there is a terminal to ask on.
pub(super) fn can_ask() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Where the data are.
pub(super) fn data() -> dialoguer::Result<PathBuf> {
    let answer: String = Input::new()
        .with_prompt("Folder or table with the data")
        .default(".".into())
        .interact_text()?;
    Ok(PathBuf::from(answer))
}

/// What is to be predicted.
pub(super) fn labels(found: &Found, offers: &[Offer]) -> dialoguer::Result<Vec<String>> {
    let names: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
    say(format_args!("Found {}. It offers: {}", super::text::kind(found), names.join(", ")));
    let answer: String = Input::new()
        .with_prompt("What is to be predicted, parted by commas")
        .default(proposed(offers).join(","))
        .interact_text()?;
    Ok(answer.split(',').map(|name| name.trim().to_owned()).collect())
}

/// How large images are.
pub(super) fn size(usual: usize) -> dialoguer::Result<usize> {
    Input::new().with_prompt("Height and width of images, in pixels").default(usual).interact_text()
}

/// How much memory a run may take.
pub(super) fn budget() -> dialoguer::Result<String> {
    Input::new()
        .with_prompt("Memory that a run may take, such as 11GiB or 90% of the device's")
        .default(BUDGET.to_owned())
        .interact_text()
}
