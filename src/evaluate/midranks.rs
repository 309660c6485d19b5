//! The places of numbers in their order, equal ones sharing the mean of theirs.

/// The rank of each value, counted from 1; equal values get the mean of the ranks they take up.
///
/// O(n log n), as Sun and Xu (2014), "Fast Implementation of DeLong's Algorithm for
/// Comparing the Areas Under Correlated Receiver Operating Characteristic Curves".
pub(super) fn midranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    // `total_cmp` puts −0 below 0, but beside it; as numbers they are equal and tie.
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for tied in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = before as f64 + (tied.len() + 1) as f64 / 2.0;
        tied.iter().for_each(|&place| ranks[place] = rank);
        before += tied.len();
    }
    ranks
}
