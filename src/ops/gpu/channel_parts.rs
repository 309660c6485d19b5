//! How the channels of a map lie in its rows, where they are no whole vectors.

/// Kernels load whole vectors of so many channels.
const VECTOR: usize = 8;

/// The channels of a map in parts, behind each of which rows have channels of zeros, up to a whole number of
/// vectors. A dense block's map has a part for its input's channels and one for those of each layer.
///
/// Zeros stay zeros: the weights, scales and shifts of such channels are zeros too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelParts(Vec<Part>);

/// Channels, and channels of zeros behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) channels: usize,
    /// How many there are with those of zeros.
    pub(super) room: usize,
}

impl ChannelParts {
    /// Those of images, which have no zeros behind them.
    pub fn of_images(channels: usize) -> Self {
        Self(vec![Part { channels, room: channels }])
    }

    /// So many channels in one part.
    pub fn one(channels: usize) -> Self {
        Self(vec![Part { channels, room: channels.next_multiple_of(VECTOR) }])
    }

    /// These channels, and behind them those of `others`.
    pub fn then(mut self, others: &Self) -> Self {
        self.0.extend(&others.0);
        self
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.0.iter().map(|part| part.channels).sum()
    }

    /// How many there are with those of zeros.
    pub fn room(&self) -> usize {
        self.0.iter().map(|part| part.room).sum()
    }

    /// Whether there are channels of zeros.
    pub fn is_padded(&self) -> bool {
        self.room() > self.channels()
    }

    /// Where each part begins in a row, how many channels it has, and how many of zeros are behind it.
    pub fn parts(&self) -> impl Iterator<Item = [usize; 3]> {
        let place = |start: &mut usize, part: &Part| {
            let begin = *start;
            *start += part.room;
            Some([begin, part.channels, part.room - part.channels])
        };
        self.0.iter().scan(0, place)
    }

    /// The first part, and what all others are.
    ///
    /// # Panics
    ///
    /// When the others differ.
    pub(super) fn first_and_next(&self) -> [Part; 2] {
        let first = self.0[0];
        let next = *self.0.get(1).unwrap_or(&first);
        assert!(self.0[1..].iter().all(|part| *part == next), "{self:?}");
        [first, next]
    }

    /// Where each channel lies in a row.
    pub fn places(&self) -> Vec<usize> {
        self.parts().flat_map(|[start, channels, _]| start..start + channels).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_stand_behind_each_part() {
        let block = ChannelParts::one(12).then(&ChannelParts::one(3)).then(&ChannelParts::one(8));
        assert_eq!([block.channels(), block.room()], [23, 32]);
        let places: Vec<usize> = (0..12).chain(16..19).chain(24..32).collect();
        assert_eq!(block.places(), places);
        assert_eq!(block.parts().collect::<Vec<_>>(), [[0, 12, 4], [16, 3, 5], [24, 8, 0]]);
        assert!(block.is_padded() && !ChannelParts::one(16).is_padded());
        assert!(!ChannelParts::of_images(3).is_padded());
    }
}
