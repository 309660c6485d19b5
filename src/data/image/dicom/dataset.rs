//! The elements of a data set (PS3.5 chapter 7), read in place: nothing is copied and nothing is
//! allocated by what a length claims. The dicom-parser crate reserves an element's claimed length,
//! up to 4 GiB, before it reads, so a hostile file of a hundred bytes would cost that much.

use std::collections::BTreeMap;

use super::syntax::Encoding;

/// `(group, element)`.
pub(super) type Tag = (u16, u16);

pub(super) const PIXEL_DATA: Tag = (0x7FE0, 0x0010);
const ITEM: Tag = (0xFFFE, 0xE000);
const ITEM_END: Tag = (0xFFFE, 0xE00D);
const SEQUENCE_END: Tag = (0xFFFE, 0xE0DD);
const UNDEFINED: u32 = u32::MAX;
/// Real files nest some five sequences.
const DEEPEST: usize = 32;
/// One frame is one fragment nearly always.
const MOST_FRAGMENTS: usize = 1 << 16;
/// The two sequences whose first item is kept: Modality LUT and VOI LUT.
const KEPT_SEQUENCES: [Tag; 2] = [(0x0028, 0x3000), (0x0028, 0x3010)];

/// What an element holds.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Bytes(&'a [u8]),
    /// The first item of a kept sequence; `None` where it has no item.
    Item(Option<Dataset<'a>>),
    /// Encapsulated pixels, without the offset table.
    Fragments(Vec<&'a [u8]>),
}

#[derive(Debug, Clone)]
struct Element<'a> {
    /// The value representation, where the encoding is explicit.
    vr: Option<[u8; 2]>,
    value: Value<'a>,
}

/// The elements that decoding an image needs, up to and with the pixels.
#[derive(Debug, Clone)]
pub(super) struct Dataset<'a> {
    pub(super) big_endian: bool,
    elements: BTreeMap<Tag, Element<'a>>,
}

impl<'a> Dataset<'a> {
    /// Reads elements from byte `start` to the end, or to where `until` says stop.
    ///
    /// # Errors
    /// What is malformed, with its byte.
    pub(super) fn read(
        bytes: &'a [u8],
        start: usize,
        encoding: Encoding,
        until: impl Fn(Tag) -> bool,
    ) -> Result<(Self, usize), String> {
        let mut reader = Reader { bytes, at: start, encoding };
        let mut elements = BTreeMap::new();
        while reader.at < bytes.len() {
            let begin = reader.at;
            // Files are padded to whole blocks now and then.
            if bytes[begin..].starts_with(&[0; 4]) {
                if bytes[begin..].iter().any(|&byte| byte != 0) {
                    return Err(format!(
                        "its header is malformed at byte {begin}: there are zeros"
                    ));
                }
                break;
            }
            // What follows meta information may be written in another encoding.
            if until(reader.tag()?) {
                reader.at = begin;
                break;
            }
            reader.at = begin;
            let header = reader.header()?;
            let value = reader.value(&header, 0)?;
            if let Some(value) = value.filter(|_| is_kept(header.tag)) {
                elements.insert(header.tag, Element { vr: header.vr, value });
            }
            if header.tag == PIXEL_DATA {
                break;
            }
        }
        Ok((Self { big_endian: encoding.big_endian, elements }, reader.at))
    }

    pub(super) fn value(&self, tag: Tag) -> Option<&Value<'a>> {
        self.elements.get(&tag).map(|element| &element.value)
    }

    /// The bytes of an element that is there and not empty.
    pub(super) fn bytes(&self, tag: Tag) -> Option<&'a [u8]> {
        match self.value(tag) {
            Some(Value::Bytes(bytes)) if !bytes.is_empty() => Some(bytes),
            _ => None,
        }
    }

    /// The first item of a sequence.
    pub(super) fn item(&self, tag: Tag) -> Option<&Dataset<'a>> {
        match self.value(tag) {
            Some(Value::Item(item)) => item.as_ref(),
            _ => None,
        }
    }

    /// An element's value representation, where the encoding gives it.
    pub(super) fn vr(&self, tag: Tag) -> Option<[u8; 2]> {
        self.elements.get(&tag)?.vr
    }

    /// Whether the file itself says that an element's values are signed, where it says anything.
    pub(super) fn says_signed(&self, tag: Tag) -> Option<bool> {
        match self.vr(tag)? {
            [b'S', b'S'] => Some(true),
            [b'U', b'S'] => Some(false),
            _ => None,
        }
    }

    /// The first value of a string of numbers or words, trimmed; `None` where it is empty.
    pub(super) fn text(&self, tag: Tag) -> Option<&'a str> {
        let bytes = self.bytes(tag)?;
        let first = bytes.split(|&byte| byte == b'\\').next()?;
        let text = str::from_utf8(first).ok()?.trim_matches([' ', '\0']);
        (!text.is_empty()).then_some(text)
    }

    /// The first 16-bit number.
    pub(super) fn number(&self, tag: Tag) -> Option<u16> {
        self.words(tag)?.next()
    }

    /// The 16-bit numbers.
    pub(super) fn words(&self, tag: Tag) -> Option<impl Iterator<Item = u16> + use<'a>> {
        let big_endian = self.big_endian;
        Some(self.bytes(tag)?.chunks_exact(2).map(move |pair| word([pair[0], pair[1]], big_endian)))
    }
}

pub(super) fn word(bytes: [u8; 2], big_endian: bool) -> u16 {
    if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
}

struct Header {
    at: usize,
    tag: Tag,
    vr: Option<[u8; 2]>,
    length: u32,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    encoding: Encoding,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| format!("it is cut off in its header, at byte {}", self.at))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn half(&mut self) -> Result<u16, String> {
        let bytes = self.take(2)?;
        Ok(word([bytes[0], bytes[1]], self.encoding.big_endian))
    }

    fn whole(&mut self) -> Result<u32, String> {
        let [first, second] = [u32::from(self.half()?), u32::from(self.half()?)];
        let (high, low) = if self.encoding.big_endian { (first, second) } else { (second, first) };
        Ok(high << 16 | low)
    }

    fn tag(&mut self) -> Result<Tag, String> {
        Ok((self.half()?, self.half()?))
    }

    fn header(&mut self) -> Result<Header, String> {
        let at = self.at;
        let tag = self.tag()?;
        // Items and their ends have no value representation in any encoding.
        if tag.0 == 0xFFFE || !self.encoding.explicit {
            return Ok(Header { at, tag, vr: None, length: self.whole()? });
        }
        let vr = self.take(2)?;
        let vr = [vr[0], vr[1]];
        if !vr.iter().all(u8::is_ascii_uppercase) {
            return Err(format!("its header is malformed at byte {at}, in element {}", shown(tag)));
        }
        let length = if has_long_length(vr) {
            self.take(2)?;
            self.whole()?
        } else {
            u32::from(self.half()?)
        };
        Ok(Header { at, tag, vr: Some(vr), length })
    }

    /// The value behind a header; `None` for sequences that nothing here needs.
    fn value(&mut self, header: &Header, depth: usize) -> Result<Option<Value<'a>>, String> {
        let kept = depth == 0 && KEPT_SEQUENCES.contains(&header.tag);
        if header.length == UNDEFINED {
            if header.tag == PIXEL_DATA && depth == 0 {
                return self.fragments().map(|fragments| Some(Value::Fragments(fragments)));
            }
            // A sequence that was written by who did not know its representation (PS3.5 6.2.2).
            let encoding = self.encoding;
            if header.vr == Some(*b"UN") {
                self.encoding = Encoding::IMPLICIT_LITTLE;
            }
            let item = self.sequence(depth, None, kept);
            self.encoding = encoding;
            return Ok(kept.then_some(Value::Item(item?)));
        }
        let length = header.length as usize;
        let left = self.bytes.len() - self.at;
        if length > left {
            return Err(if header.tag == PIXEL_DATA {
                format!("it is cut off: it holds {left} of {length} bytes of pixels")
            } else {
                format!(
                    "its header is malformed at byte {}: element {} claims {length} bytes, {left} are left",
                    header.at,
                    shown(header.tag)
                )
            });
        }
        if kept {
            let end = self.at + length;
            return Ok(Some(Value::Item(self.sequence(depth, Some(end), true)?)));
        }
        Ok(Some(Value::Bytes(self.take(length)?)))
    }

    /// Walks a sequence to byte `end`, or to its delimiter; the first item is kept where asked.
    fn sequence(
        &mut self,
        depth: usize,
        end: Option<usize>,
        kept: bool,
    ) -> Result<Option<Dataset<'a>>, String> {
        if depth >= DEEPEST {
            return Err(format!("its header nests more than {DEEPEST} sequences"));
        }
        let mut first = None;
        while end.is_none_or(|end| self.at < end) {
            let header = self.header()?;
            match header.tag {
                SEQUENCE_END => break,
                ITEM => {
                    let wanted = kept && first.is_none();
                    let elements = self.item(depth + 1, header.length, wanted)?;
                    if wanted {
                        let big_endian = self.encoding.big_endian;
                        first = Some(Dataset { big_endian, elements });
                    }
                }
                tag => {
                    return Err(format!(
                        "its header is malformed at byte {}: element {} stands where an item must",
                        header.at,
                        shown(tag)
                    ));
                }
            }
        }
        Ok(first)
    }

    fn item(
        &mut self,
        depth: usize,
        length: u32,
        wanted: bool,
    ) -> Result<BTreeMap<Tag, Element<'a>>, String> {
        let mut elements = BTreeMap::new();
        let end = (length != UNDEFINED).then(|| self.at.saturating_add(length as usize));
        while end.is_none_or(|end| self.at < end) {
            let header = self.header()?;
            if header.tag == ITEM_END {
                break;
            }
            let value = self.value(&header, depth)?;
            if let Some(value) = value.filter(|_| wanted && is_kept(header.tag)) {
                elements.insert(header.tag, Element { vr: header.vr, value });
            }
        }
        Ok(elements)
    }

    /// The fragments of encapsulated pixels (PS3.5 A.4), without the offset table before them.
    fn fragments(&mut self) -> Result<Vec<&'a [u8]>, String> {
        let cut = |at| format!("it is cut off in its compressed pixels, at byte {at}");
        let mut fragments = Vec::new();
        loop {
            let header = self.header().map_err(|_| cut(self.at))?;
            match header.tag {
                // Some writers leave the end out; the compressed stream has its own.
                SEQUENCE_END => break,
                ITEM => {
                    let fragment = self.take(header.length as usize).map_err(|_| cut(header.at))?;
                    fragments.push(fragment);
                    if fragments.len() > MOST_FRAGMENTS {
                        return Err(format!(
                            "its pixels are in more than {MOST_FRAGMENTS} fragments"
                        ));
                    }
                }
                tag => {
                    return Err(format!(
                        "its compressed pixels are malformed at byte {}: element {} stands where a fragment must",
                        header.at,
                        shown(tag)
                    ));
                }
            }
            if self.at == self.bytes.len() {
                break;
            }
        }
        fragments.drain(..fragments.len().min(1));
        Ok(fragments)
    }
}

/// Patients, studies and private elements are none of an image decoder's concern, and a hostile file
/// can hold a hundred million of them.
fn is_kept((group, _): Tag) -> bool {
    matches!(group, 0x0002 | 0x0028 | 0x7FE0)
}

/// `(0028,0010)`, as PS3.6 writes it.
pub(super) fn shown((group, element): Tag) -> String {
    format!("({group:04X},{element:04X})")
}

/// The representations whose length takes 32 bits (PS3.5 table 7.1-1).
fn has_long_length(vr: [u8; 2]) -> bool {
    matches!(
        &vr,
        b"OB"
            | b"OD"
            | b"OF"
            | b"OL"
            | b"OV"
            | b"OW"
            | b"SQ"
            | b"SV"
            | b"UC"
            | b"UN"
            | b"UR"
            | b"UT"
            | b"UV"
    )
}
