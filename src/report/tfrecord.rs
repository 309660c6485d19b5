//! TFRecord: the framing of records in TensorBoard's files.
//!
//! `length: u64, masked CRC of length: u32, bytes, masked CRC of bytes: u32`, all little-endian, as
//! in <https://www.tensorflow.org/tutorials/load_data/tfrecord>.

/// `record` in its frame.
pub fn frame(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    let mut framed = Vec::with_capacity(record.len() + 16);
    framed.extend(length);
    framed.extend(masked_crc(&length).to_le_bytes());
    framed.extend(record);
    framed.extend(masked_crc(record).to_le_bytes());
    framed
}

/// CRC-32C, masked because the CRC of bytes that hold their own CRC is degenerate.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmasked(masked: u32) -> u32 {
        masked.wrapping_sub(0xa282_ead8).rotate_left(15)
    }

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        // Appendix B.4 of the RFC, which lists the bytes of the CRC in the order they are sent.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let read_10: [u8; 48] = [
            0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14,
            0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        ];
        let vectors: [(&[u8], [u8; 4]); 5] = [
            (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (&descending, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read_10, [0x56, 0x3a, 0x96, 0xd9]),
        ];
        for (bytes, sent) in vectors {
            assert_eq!(unmasked(masked_crc(bytes)), u32::from_le_bytes(sent));
        }
    }

    #[test]
    fn a_frame_is_the_record_between_its_length_and_its_checksum() {
        let framed = frame(b"abc");
        assert_eq!(framed.len(), 8 + 4 + 3 + 4);
        assert_eq!(framed[..8], 3_u64.to_le_bytes());
        assert_eq!(&framed[12..15], b"abc");
        assert_eq!(framed[15..], masked_crc(b"abc").to_le_bytes());
    }
}
