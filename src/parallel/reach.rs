//! What keeps cards from each other's memory.

/// The variable by which people keep NCCL, and so PyTorch, from it: some machines say that cards reach each other, and
/// what one writes does not arrive at the other, or stalls.
pub const P2P_DISABLE: &str = "NCCL_P2P_DISABLE";

/// Whether a variable that has this value disables it: a number other than 0, as NCCL reads it.
pub fn is_p2p_disabled(value: &str) -> bool {
    value.trim().parse::<i64>().is_ok_and(|number| number != 0)
}
