//! Whole models in files from before PyTorch's version 1.6.
//!
//! Such a file names each class of a module once as `('module', class, file, source text)`, a persistent
//! id. `pytorch-reader` knows those of storages only. The class alone stands for it as well: the
//! pickle's operation that makes an object of the id is replaced by one that drops the id, and one that
//! gets the class from the memo. Nothing is interpreted here but where operations begin and end
//! (<https://github.com/python/cpython/blob/main/Lib/pickletools.py>).

/// PyTorch's magic number, pickled.
pub(super) const MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// What stands between that and the model: the version and what is known of the system.
const HEADERS: usize = 2;

const STOP: u8 = b'.';
const MARK: u8 = b'(';
const POP: u8 = b'0';
const UNICODE: u8 = b'X';
const GLOBAL: u8 = b'c';
const PUT: u8 = b'q';
const LONG_PUT: u8 = b'r';
const GET: u8 = b'h';
const LONG_GET: u8 = b'j';
const PERSISTENT_ID: u8 = b'Q';

/// The operations that no argument follows.
const WITHOUT_ARGUMENT: &[u8] = b"(.012NRbdltsao)]}euQ\x81\x85\x86\x87\x88\x89";

/// The file with classes in place of their ids; none where it has no such id.
pub(super) fn with_plain_classes(file: &[u8]) -> Option<Vec<u8>> {
    file.starts_with(MAGIC).then_some(())?;
    let mut operations = Operations { file, at: MAGIC.len() };
    for _ in 0..HEADERS {
        while operations.next()?.code != STOP {}
    }
    let (mut plain, mut copied) = (Vec::with_capacity(file.len()), 0);
    let (mut seen, mut tag) = (Seen::Nothing, None);
    loop {
        let operation = operations.next()?;
        let memo = operation.memo();
        seen = match (seen, operation.code) {
            (_, STOP) => break,
            (_, MARK) => Seen::Mark,
            (Seen::Mark, UNICODE) if operation.argument == b"module" => Seen::Tag,
            (Seen::Mark, GET | LONG_GET) if memo == tag => Seen::Tag,
            (Seen::Tag, PUT | LONG_PUT) => {
                tag = memo;
                Seen::Tag
            }
            (Seen::Tag, GLOBAL) => Seen::Class,
            (Seen::Class, PUT | LONG_PUT) | (Seen::Tag, GET | LONG_GET) => {
                memo.map_or(Seen::Nothing, Seen::ClassAt)
            }
            (Seen::ClassAt(memo), PERSISTENT_ID) => {
                plain.extend(&file[copied..operations.at - 1]);
                plain.extend([POP, LONG_GET]);
                plain.extend(memo.to_le_bytes());
                copied = operations.at;
                Seen::Nothing
            }
            (Seen::ClassAt(memo), _) => Seen::ClassAt(memo),
            _ => Seen::Nothing,
        };
    }
    plain.extend(&file[copied..]);
    (copied > 0).then_some(plain)
}

/// How much of a class's id has been seen.
#[derive(Clone, Copy)]
enum Seen {
    Nothing,
    /// The beginning of some tuple.
    Mark,
    /// `'module'` as its first element.
    Tag,
    /// The class as its second.
    Class,
    /// Where in the memo the class is.
    ClassAt(u32),
}

/// An operation of a pickle.
struct Operation<'a> {
    code: u8,
    /// Without its length or end of line.
    argument: &'a [u8],
}

impl Operation<'_> {
    /// The place in the memo that it puts to or gets from.
    fn memo(&self) -> Option<u32> {
        match (self.code, self.argument) {
            (PUT | GET, [place]) => Some(u32::from(*place)),
            (LONG_PUT | LONG_GET, place) => Some(u32::from_le_bytes(place.try_into().ok()?)),
            _ => None,
        }
    }
}

/// The operations of the pickles in a file, one behind the other.
struct Operations<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Operations<'a> {
    /// The next one; none where the file ends, or at one that PyTorch did not write in these files.
    fn next(&mut self) -> Option<Operation<'a>> {
        let code = self.take(1)?[0];
        let argument = match code {
            b'K' | b'q' | b'h' | 0x80 => self.take(1)?,
            b'M' => self.take(2)?,
            b'J' | b'r' | b'j' => self.take(4)?,
            b'G' => self.take(8)?,
            b'U' | b'C' | 0x8a | 0x8c => {
                let length = usize::from(self.take(1)?[0]);
                self.take(length)?
            }
            b'X' | b'T' | b'B' | 0x8b => {
                let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
                self.take(usize::try_from(length).ok()?)?
            }
            GLOBAL => {
                // The module and its class.
                self.line()?;
                self.line()?
            }
            b'I' | b'L' | b'F' | b'S' | b'V' | b'p' | b'g' => self.line()?,
            _ if WITHOUT_ARGUMENT.contains(&code) => &[],
            _ => return None,
        };
        Some(Operation { code, argument })
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.file.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let length = self.file[self.at..].iter().position(|byte| *byte == b'\n')?;
        let line = self.take(length)?;
        self.take(1)?;
        Some(line)
    }
}
