//! What each process finds for its part of a batch, put together.

use crate::parallel::Member;
use crate::parallel::processes::{Elsewhere, pack, unpack};
use crate::train::{Evaluated, HeadLoss, TrainError};

/// What all devices have found, in their order.
pub(super) fn of_all(member: &Member, own: &Evaluated) -> Result<Vec<Evaluated>, TrainError> {
    let all = member.gather_bytes("outputs", encoded(own)).into_iter();
    let all: Option<Vec<Evaluated>> = all.map(|bytes| decoded(&bytes)).collect();
    all.ok_or_else(|| {
        let message = "the outputs of another process cannot be read".to_owned();
        Elsewhere { rank: member.rank(), message, code: 1, lost: true }.into()
    })
}

fn encoded((rows, losses): &Evaluated) -> Vec<u8> {
    let bytes = |row: &Vec<f32>| row.iter().flat_map(|value| value.to_le_bytes()).collect();
    let rows: Vec<Vec<u8>> = rows.iter().map(bytes).collect();
    let loss = |loss: &HeadLoss| [loss.sum.to_le_bytes(), loss.normalizer.to_le_bytes()].concat();
    let losses: Vec<Vec<u8>> = losses.iter().map(loss).collect();
    let rows = rows.iter().map(|row| (ROWS, row.as_slice()));
    pack(rows.chain(losses.iter().map(|loss| (LOSS, loss.as_slice()))))
}

const ROWS: &str = "rows";
const LOSS: &str = "loss";

fn decoded(parcel: &[u8]) -> Option<Evaluated> {
    let (mut rows, mut losses) = (Vec::new(), Vec::new());
    for (name, bytes) in unpack(parcel)? {
        match name.as_str() {
            ROWS => {
                let (values, []) = bytes.as_chunks::<4>() else { return None };
                rows.push(values.iter().map(|value| f32::from_le_bytes(*value)).collect());
            }
            LOSS => {
                let (&[sum, normalizer], []) = bytes.as_chunks::<8>() else { return None };
                let [sum, normalizer] = [sum, normalizer].map(f64::from_le_bytes);
                losses.push(HeadLoss { sum, normalizer });
            }
            _ => return None,
        }
    }
    Some((rows, losses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_and_losses_keep_every_bit() {
        let rows = vec![vec![1.5, -0.0, f32::INFINITY, 1e-40], vec![]];
        let losses = vec![HeadLoss { sum: 0.1, normalizer: 3.0 }, HeadLoss::default()];
        let (found, found_losses) =
            decoded(&encoded(&(rows.clone(), losses.clone()))).expect("reads");
        assert_eq!((found_losses, found.len()), (losses, 2));
        let bits = |row: &Vec<f32>| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found[0]), bits(&rows[0]));
        assert_eq!(decoded(&pack([("rows", &[0; 3][..])])), None);
    }
}
