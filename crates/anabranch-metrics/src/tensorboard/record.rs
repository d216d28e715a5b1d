//! Event files: records with checksums, each a protocol buffer of the message `Event`.

/// Frames a record: its length and its bytes, each followed by a masked CRC-32C.
pub(crate) fn framed(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    let mut framed = Vec::with_capacity(record.len() + 16);
    framed.extend_from_slice(&length);
    framed.extend_from_slice(&masked_crc(&length).to_le_bytes());
    framed.extend_from_slice(record);
    framed.extend_from_slice(&masked_crc(record).to_le_bytes());
    framed
}

/// The checksum in the form that the format stores: rotated and shifted, so that the checksum of data that contains
/// checksums differs from them.
pub(crate) fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A protocol buffer that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(mut self, field: u8, value: u64) -> Self {
        self.0.push(field << 3);
        self.varint(value);
        self
    }

    fn double(mut self, field: u8, value: f64) -> Self {
        self.0.push(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn float(mut self, field: u8, value: f32) -> Self {
        self.0.push(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.0.push(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
}

/// `Event { wall_time, file_version }`: the first of every file.
pub(crate) fn file_version(wall_time: f64) -> Vec<u8> {
    Message::default().double(1, wall_time).bytes(3, b"brain.Event:2").0
}

/// `Event { wall_time, step, session_log { status: START } }`: replaces this step and all later steps of earlier files.
pub(crate) fn session_start(wall_time: f64, step: u64) -> Vec<u8> {
    let start = Message::default().integer(1, 1).0;
    Message::default().double(1, wall_time).integer(2, step).bytes(7, &start).0
}

/// `Event { wall_time, step, summary { value { tag, simple_value } … } }`.
pub(crate) fn scalars(wall_time: f64, step: u64, values: &[(String, f64)]) -> Vec<u8> {
    let summary = values.iter().fold(Message::default(), |summary, (tag, value)| {
        summary.bytes(1, &Message::default().bytes(1, tag.as_bytes()).float(2, *value as f32).0)
    });
    Message::default().double(1, wall_time).integer(2, step).bytes(5, &summary.0).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_masked_as_the_format_says() {
        // CRC-32C of "123456789" is the standard check value.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5);
        let record = framed(b"123456789");
        assert_eq!((record.len(), &record[..8], &record[12..21]), (25, &9_u64.to_le_bytes()[..], &b"123456789"[..]));
    }

    #[test]
    fn messages_are_encoded_by_the_wire_format() {
        assert_eq!(Message::default().integer(2, 300).0, [0x10, 0xac, 0x02]);
        let values = [("a".to_owned(), 1.5)];
        let event = scalars(0.0, 1, &values);
        let tail = [0x10, 1, 0x2a, 10, 0x0a, 8, 0x0a, 1, b'a', 0x15, 0, 0, 0xc0, 0x3f];
        assert_eq!(event[..9], [9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(event[9..], tail);
    }
}
