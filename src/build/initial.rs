//! The weights that a model starts from.

use burn::tensor::{Device, Tensor, TensorData};

use super::BuildError;
use crate::memory::Chain;
use crate::model::weights::{Initial, initial};
use crate::plan::Plan;

/// Puts the weights that the plan names, if it names any, into the chain, which may lie in parts on
/// several devices; says what was taken.
///
/// # Errors
/// When the file cannot be read, or holds the weights of another model or for images of another scale.
pub(super) fn start_from(
    plan: &Plan,
    parts: &mut [(&mut Chain, &Device)],
) -> Result<Option<Initial>, BuildError> {
    let Some(path) = &plan.init else { return Ok(None) };
    let wanted = parts.iter().flat_map(|(chain, _)| chain.parameters());
    let wanted: Vec<(String, Vec<usize>)> = wanted.map(|p| (p.name, p.shape)).collect();
    let (initial, mut values) = initial(path, &wanted, &plan.heads)?;
    initial.check_scale(&plan.data.image.normalize, plan.data.image.channels)?;
    for (chain, device) in parts {
        let device: &Device = device;
        chain.map_parameters(|name, value| match values.remove(name) {
            Some(numbers) => {
                let shape = [numbers.len()];
                Tensor::from_data(TensorData::new(numbers, shape), (device, value.dtype()))
            }
            None => value,
        });
    }
    Ok(Some(initial))
}
