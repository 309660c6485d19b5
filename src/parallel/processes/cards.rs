//! The cards of several processes, one each.

use serde::{Deserialize, Serialize};

use super::{Elsewhere, Processes};

/// A process's card, as the others are told of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Card {
    /// What it is called on its machine, such as `cuda:1`.
    pub name: String,
    /// What the driver knows it by, the same in all processes.
    pub identity: Vec<u8>,
    /// What tells its machine from others.
    pub machine: String,
    /// How many multiprocessors it has.
    pub multiprocessors: usize,
    /// Whether nothing is to be exchanged but over TCP.
    pub over_tcp: bool,
}

/// The cards of all processes, in the order of their ranks.
#[derive(Debug, Clone)]
pub struct Cards(pub Vec<Card>);

impl Card {
    fn is(&self, other: &Self) -> bool {
        self.machine == other.machine && self.identity == other.identity
    }
}

impl Cards {
    /// How many processes have the card that most have.
    pub fn most_on_one(&self) -> usize {
        let same = |card: &Card| self.0.iter().filter(|other| other.is(card)).count();
        self.0.iter().map(same).max().unwrap_or(1)
    }

    /// What a person should know where processes have the same card.
    pub fn shared(&self) -> Option<String> {
        let earlier = |rank: usize| self.0[..rank].iter().position(|card| card.is(&self.0[rank]));
        let (first, rank) = (1..self.0.len()).find_map(|rank| Some((earlier(rank)?, rank)))?;
        Some(format!(
            "rank {first} and rank {rank} compute on the same card, `{}` of their machine: they take turns, and \
             each has a part of its memory. Start as many processes as there are cards",
            self.0[rank].name
        ))
    }

    /// Why cards are not to reach each other's memory, as a clause; nothing where they may.
    pub fn apart(&self) -> Option<&'static str> {
        if self.0.iter().any(|card| card.over_tcp) {
            return Some(
                "TRAINER_EXCHANGE is `tcp` or NCCL_P2P_DISABLE is set for one of them or more",
            );
        }
        if self.0.iter().any(|card| card.machine != self.0[0].machine) {
            return Some("they are on several machines");
        }
        // A card that waits in a kernel for another process keeps that one from computing.
        (self.most_on_one() > 1).then_some("several processes have one card")
    }

    /// The multiprocessors of the smallest.
    pub fn multiprocessors(&self) -> usize {
        self.0.iter().map(|card| card.multiprocessors).min().unwrap_or(1)
    }
}

impl Processes {
    /// What every rank brings, in their order, which all get.
    ///
    /// # Errors
    /// When a rank has failed.
    pub fn gather_values<T: Serialize + for<'a> Deserialize<'a>>(
        &self,
        name: &str,
        own: &T,
    ) -> Result<Vec<T>, Elsewhere> {
        let own = serde_json::to_vec(own).unwrap_or_default();
        let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).ok();
        let all: Option<Vec<T>> = self.gather(name, &own)?.iter().map(read).collect();
        all.ok_or_else(|| {
            let message = format!("what came as {name:?} cannot be read");
            Elsewhere { rank: self.rank(), message, code: 1, lost: true }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(all: &[(&str, u8)]) -> Cards {
        let card = |(machine, identity): &(&str, u8)| Card {
            name: "cuda:0".to_owned(),
            identity: vec![*identity; 16],
            machine: (*machine).to_owned(),
            multiprocessors: 132 - usize::from(*identity),
            over_tcp: false,
        };
        Cards(all.iter().map(card).collect())
    }

    /// Where each process sees its own card alone, all are called `cuda:0`.
    #[test]
    fn a_card_is_known_by_what_the_driver_calls_it_and_its_machine() {
        let apart = cards(&[("a", 1), ("a", 2), ("a", 3)]);
        assert_eq!((apart.most_on_one(), apart.shared(), apart.apart()), (1, None, None));
        assert_eq!(apart.multiprocessors(), 129);
        let machines = cards(&[("a", 1), ("b", 1)]);
        assert_eq!((machines.most_on_one(), machines.shared()), (1, None));
        assert_eq!(machines.apart(), Some("they are on several machines"));
    }

    #[test]
    fn ranks_with_one_card_are_named() {
        let all = cards(&[("a", 1), ("a", 2), ("a", 3), ("a", 2), ("b", 2)]);
        assert_eq!(all.most_on_one(), 2);
        let told = all.shared().expect("two have the same");
        assert!(told.starts_with("rank 1 and rank 3 compute on the same card"), "{told}");
        assert_eq!(cards(&[("a", 1), ("a", 1)]).apart(), Some("several processes have one card"));
    }

    #[test]
    fn memory_is_left_where_one_process_asks_for_tcp() {
        let mut all = cards(&[("a", 1), ("a", 2)]);
        all.0[1].over_tcp = true;
        assert_eq!(
            all.apart(),
            Some("TRAINER_EXCHANGE is `tcp` or NCCL_P2P_DISABLE is set for one of them or more")
        );
    }
}
