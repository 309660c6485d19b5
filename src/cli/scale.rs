//! The scale of images, where the configuration leaves it to the weights that training starts from.

use crate::config::Loaded;
use crate::data::{Normalize, NormalizeKind};
use crate::model::weights::sees_xrv_levels;
use crate::screen::tell_progress;

const KEY: &str = "data.image.normalize";

/// Sets `data.image.normalize` to that of torchxrayvision's weights where the configuration names such
/// weights and no scale. Without this it would have the default, which these weights are not for.
///
/// A file that cannot be read is told about where its weights are taken.
pub(super) fn fill_in(loaded: &mut Loaded) {
    let Loaded { config, source } = loaded;
    let Some(path) = config.model.init.as_deref().filter(|path| path.is_file()) else { return };
    if !source.has(KEY) && sees_xrv_levels(path).unwrap_or(false) {
        config.data.image.normalize = Normalize::Named(NormalizeKind::Xrv);
        let file = path.display();
        tell_progress(&format!("{KEY} = \"xrv\": the weights in {file} are torchxrayvision's"));
    }
}
