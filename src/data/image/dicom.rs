//! DICOM files (PS3.10) as grey planes.

use super::RawImage;

/// Whether the bytes begin as a DICOM file does.
pub(super) fn is_dicom(bytes: &[u8]) -> bool {
    bytes.get(128..132) == Some(b"DICM")
}

/// Decodes a DICOM file of one frame.
///
/// # Errors
/// The reason, in words that follow "image `…`: ".
pub(super) fn decode(_bytes: &[u8]) -> Result<RawImage, String> {
    Err("it is DICOM, not PNG or JPEG; convert it first".to_owned())
}
