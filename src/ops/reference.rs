//! The definition of every fused operation, in plain Burn operations.
