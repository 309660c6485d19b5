//! What processes show each other that they belong together by. The secret itself is never sent.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

/// Random bytes that are used once.
pub(super) type Nonce = [u8; 16];
/// What only who has the secret can compute.
pub(super) type Proof = [u8; 32];

/// A secret that all processes have.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: [u8; 32],
    given: bool,
}

impl Secret {
    /// The secret that a person gave.
    pub fn given(secret: &str) -> Self {
        Self { key: key(secret), given: true }
    }

    /// What follows from the launcher's variables. Other users of the machines may know it.
    pub fn derived(job: &str) -> Self {
        Self { key: key(job), given: false }
    }

    /// Whether a person gave it.
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// What shows that `role` has the secret and says `what`, in answer to both nonces.
    pub(super) fn proof(&self, role: &str, nonces: [&Nonce; 2], what: &[u8]) -> Proof {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(role.len() as u64).to_le_bytes()).update(role.as_bytes());
        hasher.update(nonces[0]).update(nonces[1]).update(what);
        *hasher.finalize().as_bytes()
    }

    /// Whether `found` is the [proof](Secret::proof) of this; how long it takes does not say how much of it.
    pub(super) fn accepts(
        &self,
        found: Proof,
        role: &str,
        nonces: [&Nonce; 2],
        what: &[u8],
    ) -> bool {
        blake3::Hash::from(found) == blake3::Hash::from(self.proof(role, nonces, what))
    }
}

fn key(secret: &str) -> [u8; 32] {
    blake3::derive_key("trainer: processes of one run, version 1", secret.as_bytes())
}

/// Bytes that nobody can foresee.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.given { "a secret" } else { "a secret of the job" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_accepted_for_the_same_secret_role_nonces_and_words_only() {
        let (secret, nonces) = (Secret::given("s3"), [[1; 16], [2; 16]]);
        let nonces = [&nonces[0], &nonces[1]];
        let proof = secret.proof("server", nonces, b"hello");
        assert!(secret.accepts(proof, "server", nonces, b"hello"));
        let other = [&nonces[1].clone(), &nonces[0].clone()];
        assert!(!secret.accepts(proof, "client", nonces, b"hello"));
        assert!(!secret.accepts(proof, "server", other, b"hello"));
        assert!(!secret.accepts(proof, "server", nonces, b"hallo"));
        assert!(!Secret::given("s4").accepts(proof, "server", nonces, b"hello"));
        assert!(!format!("{secret:?}").contains("s3"));
    }

    #[test]
    fn no_nonce_comes_twice() {
        assert_ne!(nonce().expect("is read"), nonce().expect("is read"));
    }
}
