//! The text that is signed.

use super::SignedDate;
use crate::gateway::protocol::resource_path::Link;

/// Bytes of a payload that need no allocation: names of the usual lengths.
const STACK_BYTES: usize = 256;

/// `verb \n type \n link \n x-ms-date \n date \n`, where one of the dates is empty.
pub struct Payload {
    stack: [u8; STACK_BYTES],
    length: usize,
    /// All bytes, once they are more than the stack holds.
    heap: Vec<u8>,
}

impl Payload {
    pub fn new(verb: &str, resource_type: &str, link: &Link<'_>, date: SignedDate<'_>) -> Self {
        let mut payload = Self {
            stack: [0; STACK_BYTES],
            length: 0,
            heap: Vec::new(),
        };
        payload.push_lower_case(verb);
        payload.push("\n");
        payload.push(resource_type);
        payload.push("\n");
        match link {
            Link::Name(pieces) => pieces.iter().for_each(|piece| payload.push(piece)),
            Link::Rid(rid) => payload.push(&rid.to_lowercase()),
        }
        payload.push("\n");
        match date {
            SignedDate::XMsDate(text) => {
                payload.push_lower_case(text);
                payload.push("\n\n");
            }
            SignedDate::Date(text) => {
                payload.push("\n");
                payload.push_lower_case(text);
                payload.push("\n");
            }
        }
        payload
    }

    pub fn bytes(&self) -> &[u8] {
        match self.heap.is_empty() {
            true => self.stack.get(..self.length).unwrap_or_default(),
            false => &self.heap,
        }
    }

    fn push_lower_case(&mut self, text: &str) {
        self.place(text).make_ascii_lowercase();
    }

    fn push(&mut self, text: &str) {
        self.place(text);
    }

    /// Appends the text and gives its place.
    fn place(&mut self, text: &str) -> &mut [u8] {
        let start = self.length;
        self.length += text.len();
        if self.length > STACK_BYTES || !self.heap.is_empty() {
            if self.heap.is_empty() {
                self.heap.extend(self.stack.iter().take(start));
            }
            self.heap.extend_from_slice(text.as_bytes());
            return self.heap.get_mut(start..).unwrap_or_default();
        }
        let target = self.stack.get_mut(start..self.length).unwrap_or_default();
        target.copy_from_slice(text.as_bytes());
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_go_to_the_heap_unchanged() {
        for length in [0, 1, 200, 225, 226, 227, 228, 229, 230, 256, 257, 1_000] {
            let name = "X".repeat(length);
            let link = Link::Name(["dbs/", &name, "", "", "", ""]);
            let date = "Thu, 01 Jan 2026 00:00:00 GMT";
            let payload = Payload::new("GET", "dbs", &link, SignedDate::XMsDate(date));
            let expected = format!("get\ndbs\ndbs/{name}\n{}\n\n", date.to_lowercase());
            assert_eq!(payload.bytes(), expected.as_bytes(), "{length}");
            let payload = Payload::new("GET", "dbs", &link, SignedDate::Date(date));
            let expected = format!("get\ndbs\ndbs/{name}\n\n{}\n", date.to_lowercase());
            assert_eq!(payload.bytes(), expected.as_bytes(), "{length}");
        }
    }
}
