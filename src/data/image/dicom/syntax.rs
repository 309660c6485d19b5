//! Transfer syntaxes (PS3.5 annex A): how a file writes its elements and its pixels.

/// How the data set's elements are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoding {
    /// Each element names its value representation.
    pub(super) explicit: bool,
    pub(super) big_endian: bool,
}

impl Encoding {
    pub(super) const EXPLICIT_LITTLE: Self = Self { explicit: true, big_endian: false };
    pub(super) const IMPLICIT_LITTLE: Self = Self { explicit: false, big_endian: false };
    pub(super) const EXPLICIT_BIG: Self = Self { explicit: true, big_endian: true };
}

/// How the pixels are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Rle,
    /// Baseline, extended and lossless: the stream itself says which.
    Jpeg,
    JpegLs,
    Jpeg2000,
}

/// A transfer syntax that is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Syntax {
    pub(super) encoding: Encoding,
    pub(super) compression: Compression,
    /// Everything after the file meta information is one raw DEFLATE stream.
    pub(super) deflated: bool,
}

impl Syntax {
    /// A data set that nothing compresses.
    pub(super) fn native(encoding: Encoding) -> Self {
        Self { encoding, compression: Compression::None, deflated: false }
    }

    /// The syntax of a unique identifier (PS3.6 annex A).
    ///
    /// # Errors
    /// The syntax by name, where it is one that is not read.
    pub(super) fn of(uid: &str) -> Result<Self, String> {
        let compressed = |compression| Self {
            encoding: Encoding::EXPLICIT_LITTLE,
            compression,
            deflated: false,
        };
        Ok(match uid {
            "1.2.840.10008.1.2" => Self::native(Encoding::IMPLICIT_LITTLE),
            "1.2.840.10008.1.2.1" => Self::native(Encoding::EXPLICIT_LITTLE),
            "1.2.840.10008.1.2.2" => Self::native(Encoding::EXPLICIT_BIG),
            "1.2.840.10008.1.2.1.99" => {
                Self { deflated: true, ..Self::native(Encoding::EXPLICIT_LITTLE) }
            }
            "1.2.840.10008.1.2.5" => compressed(Compression::Rle),
            "1.2.840.10008.1.2.4.50"
            | "1.2.840.10008.1.2.4.51"
            | "1.2.840.10008.1.2.4.57"
            | "1.2.840.10008.1.2.4.70" => compressed(Compression::Jpeg),
            "1.2.840.10008.1.2.4.80" | "1.2.840.10008.1.2.4.81" => compressed(Compression::JpegLs),
            "1.2.840.10008.1.2.4.90" | "1.2.840.10008.1.2.4.91" => {
                compressed(Compression::Jpeg2000)
            }
            other => return Err(refused(other)),
        })
    }
}

/// The names of what users do meet and is not read here.
fn refused(uid: &str) -> String {
    let name = match uid {
        "1.2.840.10008.1.2.4.92" | "1.2.840.10008.1.2.4.93" => "JPEG 2000 Part 2",
        "1.2.840.10008.1.2.4.94" | "1.2.840.10008.1.2.4.95" => "JPIP",
        uid if uid.starts_with("1.2.840.10008.1.2.4.10") => "MPEG video",
        "1.2.840.10008.1.2.4.110" | "1.2.840.10008.1.2.4.111" | "1.2.840.10008.1.2.4.112" => {
            "JPEG XL"
        }
        uid if uid.starts_with("1.2.840.10008.1.2.4.20") => "High-Throughput JPEG 2000",
        uid if uid.starts_with("1.2.840.10008.1.2.4.") => "a retired JPEG process",
        _ => "",
    };
    let named = if name.is_empty() { String::new() } else { format!(" ({name})") };
    format!(
        "its transfer syntax `{uid}`{named} is not read; convert the file to Explicit VR Little Endian"
    )
}
