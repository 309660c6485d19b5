//! Stored values as grey: everything between them is one table of at most 65,536 entries.

use super::header::{Header, Photometric};
use super::modality::Modality;
use super::voi::Voi;
use crate::data::image::Samples;

/// Each pattern of stored bits as a grey between black, 0, and white, 1.
///
/// Where the file gives neither table nor window, stored values of up to 8 bits that nothing
/// rescales are shown as they are, and any others from the smallest to the largest that the image
/// holds: detectors of 10 to 14 bits write headers of 16, whose full range would show them black,
/// and users of pydicom and torchxrayvision divide by the image's own largest value for that reason.
pub(super) fn table(
    header: &Header,
    modality: &Modality,
    voi: &Voi,
    present: impl Fn(u16) -> bool,
) -> Vec<f64> {
    let patterns = 0..=header.mask();
    let measured = |bits| modality.apply(header.value(bits));
    let (black, white) = if is_as_stored(header, modality, voi) {
        let (low, high) = header.range();
        (f64::from(low), f64::from(high))
    } else {
        let held = patterns.clone().filter(|&bits| present(bits) && !is_padding(header, bits));
        held.map(measured).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        })
    };
    let inverted = header.photometric == Photometric::Monochrome1;
    let grey = |bits| {
        if is_padding(header, bits) {
            return 0.0;
        }
        let value = measured(bits);
        let shown = voi.apply(value).unwrap_or_else(|| {
            if white > black { ((value - black) / (white - black)).clamp(0.0, 1.0) } else { 0.0 }
        });
        if inverted { 1.0 - shown } else { shown }
    };
    patterns.map(grey).collect()
}

/// Pixels outside the image are background whatever the photometric interpretation.
fn is_padding(header: &Header, bits: u16) -> bool {
    let value = header.value(bits);
    header.padding.is_some_and(|(low, high)| (low..=high).contains(&value))
}

/// Whether the file's values are its greys: no table, window or slope, and few enough bits.
fn is_as_stored(header: &Header, modality: &Modality, voi: &Voi) -> bool {
    header.stored <= 8 && *modality == Modality::Identity && *voi == Voi::Absent
}

/// The image through its table, in 8 bits where no grey is lost by that.
pub(super) fn shown(header: &Header, patterns: &[u16], modality: &Modality, voi: &Voi) -> Samples {
    let mut held = vec![false; usize::from(header.mask()) + 1];
    for &bits in patterns {
        held[usize::from(bits)] = true;
    }
    let table = table(header, modality, voi, |bits| held[usize::from(bits)]);
    let narrow = match voi {
        Voi::Table(table) => table.bits <= 8,
        _ => is_as_stored(header, modality, voi),
    };
    if narrow {
        let table: Vec<u8> = table.iter().map(|grey| (grey * 255.0).round() as u8).collect();
        Samples::U8(patterns.iter().map(|&bits| table[usize::from(bits)]).collect())
    } else {
        let table: Vec<u16> = table.iter().map(|grey| (grey * 65535.0).round() as u16).collect();
        Samples::U16(patterns.iter().map(|&bits| table[usize::from(bits)]).collect())
    }
}
