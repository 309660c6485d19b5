//! As much of protocol buffers as TensorBoard's events need: writing fields by number.
//!
//! <https://protobuf.dev/programming-guides/encoding/>. Fields are written in the order of the
//! calls; a field that holds its default is left out by not calling.

/// A message under construction.
#[derive(Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// An `int64`, not negative, or an `enum`.
    pub fn integer(mut self, field: u32, value: u64) -> Self {
        self.tag(field, 0);
        self.varint(value);
        self
    }

    /// A `double`.
    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.tag(field, 1);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// A `float`.
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, 5);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// A `string` or `bytes`.
    pub fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Self {
        self.tag(field, 2);
        self.varint(value.as_ref().len() as u64);
        self.bytes.extend(value.as_ref());
        self
    }

    /// A message inside this one.
    pub fn message(self, field: u32, value: Self) -> Self {
        self.bytes(field, value.bytes)
    }

    /// The message, encoded.
    pub fn encode(self) -> Vec<u8> {
        self.bytes
    }

    fn tag(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_encoding_guide_come_out() {
        // "Encoding": message Test1 { int32 a = 1; } with 150, Test2 { string b = 2; } with
        // "testing", Test3 { Test1 c = 3; }.
        let test1 = || Message::default().integer(1, 150);
        assert_eq!(test1().encode(), [0x08, 0x96, 0x01]);
        let test2 = Message::default().bytes(2, "testing").encode();
        assert_eq!(test2, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let test3 = Message::default().message(3, test1()).encode();
        assert_eq!(test3, [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
