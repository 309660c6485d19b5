//! Messages between two processes, with a checked header.

use std::io::{self, Read, Write};
use std::sync::Arc;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sign of life.
    Beat,
    /// A part of an exchange.
    Data,
    /// How a rank's work has ended.
    Ended,
    /// The work is of no use any more, as a rank has failed at it.
    Abandon,
    /// How the work of all has ended.
    Verdict,
    /// A rank has failed, and all end.
    Failed,
    /// The sender ends, and has done all that it had to do.
    Bye,
    /// What a card has for the cards of other processes.
    Words,
}

const KINDS: [Kind; 8] = [
    Kind::Beat,
    Kind::Data,
    Kind::Ended,
    Kind::Abandon,
    Kind::Verdict,
    Kind::Failed,
    Kind::Bye,
    Kind::Words,
];

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: Kind,
    /// The number of the exchange or piece of work that it belongs to.
    pub round: u64,
    /// What is exchanged.
    pub name: String,
    pub body: Arc<Vec<u8>>,
}

/// The name of a message by which a rank has ended its work well.
pub(super) const DONE: &str = "done";

const MAGIC: [u8; 4] = *b"TRN1";
const HEADER: usize = 32;
/// Names are those of layers.
const LONGEST_NAME: usize = 1 << 16;
/// Bytes that are read at once; whoever waits hears of each.
const CHUNK: usize = 1 << 20;

impl Frame {
    pub fn new(kind: Kind, round: u64, name: &str, body: Vec<u8>) -> Self {
        Self { kind, round, name: name.to_owned(), body: Arc::new(body) }
    }

    /// Whether it says that a rank has failed at the work of its round.
    pub fn is_over(&self) -> bool {
        self.kind == Kind::Abandon || self.kind == Kind::Ended && self.name != DONE
    }

    pub fn beat() -> Self {
        Self::new(Kind::Beat, 0, "", Vec::new())
    }

    /// `magic, kind, 0, length of the name, round, length of the body`, and the CRC-32C of all that is sent.
    fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        header[..4].copy_from_slice(&MAGIC);
        header[4] = kind as u8;
        header[8..12].copy_from_slice(&(self.name.len() as u32).to_le_bytes());
        header[12..20].copy_from_slice(&self.round.to_le_bytes());
        header[20..28].copy_from_slice(&(self.body.len() as u64).to_le_bytes());
        let sum = self.sum(&header);
        header[28..].copy_from_slice(&sum.to_le_bytes());
        header
    }

    fn sum(&self, header: &[u8; HEADER]) -> u32 {
        let sum = crc32c::crc32c(&header[..28]);
        crc32c::crc32c_append(crc32c::crc32c_append(sum, self.name.as_bytes()), &self.body)
    }

    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut head = self.header().to_vec();
        head.extend(self.name.as_bytes());
        to.write_all(&head)?;
        to.write_all(&self.body)
    }

    /// The next message, as it comes; `heard` is called whenever something has come.
    pub fn read(from: &mut impl Read, mut heard: impl FnMut()) -> io::Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        heard();
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let (magic, rest) = header.split_at(4);
        if magic != MAGIC {
            return Err(wrong("the message is not from this program"));
        }
        let kind = *KINDS.get(usize::from(rest[0])).ok_or_else(|| wrong("an unknown message"))?;
        let number = |from: usize, to: usize| {
            header[from..to].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let [name, round, body, sum] =
            [number(8, 12), number(12, 20), number(20, 28), number(28, 32)];
        let name = usize::try_from(name).ok().filter(|length| *length <= LONGEST_NAME);
        let name = read_exactly(from, name.ok_or_else(|| wrong("a name too long"))?, &mut heard)?;
        let name = String::from_utf8(name).map_err(|_| wrong("a name that is no text"))?;
        let body = usize::try_from(body).map_err(|_| wrong("a message too long"))?;
        let body = Arc::new(read_exactly(from, body, &mut heard)?);
        let frame = Self { kind, round, name, body };
        match u64::from(frame.sum(&header)) == sum {
            true => Ok(frame),
            false => Err(wrong("a message came damaged")),
        }
    }
}

/// Memory is taken as bytes come, whatever a header says.
fn read_exactly(
    from: &mut impl Read,
    length: usize,
    heard: &mut impl FnMut(),
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(CHUNK));
    while bytes.len() < length {
        let begin = bytes.len();
        bytes.resize(length.min(begin + CHUNK), 0);
        from.read_exact(&mut bytes[begin..])?;
        heard();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back_as_it_was_written() {
        for (kind, length) in
            KINDS.into_iter().zip([0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 12])
        {
            let body = (0..length).map(|at| (at % 251) as u8).collect();
            let frame = Frame::new(kind, u64::MAX - 3, "block1/norm/µ", body);
            let mut bytes = Vec::new();
            frame.write(&mut bytes).expect("is written");
            let mut heard = 0;
            let found = Frame::read(&mut &bytes[..], || heard += 1).expect("is read");
            assert_eq!(found, frame);
            assert_eq!(heard, 2 + length.div_ceil(CHUNK));
        }
    }

    #[test]
    fn a_message_with_any_byte_changed_or_missing_is_refused() {
        let frame = Frame::new(Kind::Data, 7, "sum", vec![1, 2, 3]);
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("is written");
        for at in 0..bytes.len() {
            assert!(Frame::read(&mut &bytes[..at], || ()).is_err(), "{at} bytes");
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Frame::read(&mut &other[..], || ()).is_err(), "byte {at}");
        }
    }
}
