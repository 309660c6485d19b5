//! What the user wrote: loading, overrides, and errors that point at the line. Opens no device and
//! no data.
//!
//! A configuration passes through these steps, each in its file: `tree` (the parsed text with the
//! place of every key), `overrides` (`--set` changes the tree), `conform` (the tree is held against
//! the `shape` that the JSON Schema of the types gives), then serde. Faults that are found later
//! name a key, and [`Source`] finds where it was written.

mod conform;
mod error;
mod grid;
mod keys;
mod load;
mod overrides;
mod positions;
mod reference;
mod schema;
mod shape;
mod syntax;
mod tree;
mod twice;
mod types;
mod wording;

pub use error::{ConfigError, Position};
pub use grid::{Combination, Grid, load_grid, read_grid};
pub use load::{Loaded, load, read};
pub use positions::Source;
pub use reference::reference;
pub use schema::schema;
pub use types::*;
