//! Random streams that depend on what they are for and on nothing else.
//!
//! A stream is named by the run's seed, a purpose and numbers such as (epoch, image). So results do
//! not depend on the number of threads, and a resumed run draws what an uninterrupted one would.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// The stream of `purpose` at `place`, under `seed`.
pub fn stream(seed: u64, purpose: &str, place: &[u64]) -> ChaCha8Rng {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(purpose.as_bytes());
    for number in place {
        hasher.update(&number.to_le_bytes());
    }
    ChaCha8Rng::from_seed(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn a_stream_is_fixed_by_its_name_and_differs_from_every_other() {
        let first = |seed, purpose, place: &[u64]| stream(seed, purpose, place).next_u64();
        assert_eq!(first(7, "shuffle", &[1]), first(7, "shuffle", &[1]));
        assert_ne!(first(7, "shuffle", &[1]), first(8, "shuffle", &[1]));
        assert_ne!(first(7, "shuffle", &[1]), first(7, "dropout", &[1]));
        assert_ne!(first(7, "shuffle", &[1]), first(7, "shuffle", &[2]));
    }
}
