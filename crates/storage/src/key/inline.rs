//! Key bytes, short ones without an allocation.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The longest key that needs no allocation: two integers, or a date and a short code.
pub const KEY_INLINE_MAX: usize = 23;

#[derive(Clone)]
enum Storage {
    Inline { len: u8, bytes: [u8; KEY_INLINE_MAX] },
    Boxed(Box<[u8]>),
}

/// Order-preserving key bytes.
#[derive(Clone)]
pub struct Key(Storage);

impl Key {
    /// What stands for NULL in a key; a value's tag is another.
    pub(crate) const NULL_TAG: u8 = 0xFF;

    /// A key of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() <= KEY_INLINE_MAX {
            let mut inline = [0; KEY_INLINE_MAX];
            inline[..bytes.len()].copy_from_slice(bytes);
            Self(Storage::Inline { len: bytes.len() as u8, bytes: inline })
        } else {
            Self(Storage::Boxed(bytes.into()))
        }
    }

    /// The key before every other.
    pub fn lowest() -> Self {
        Self::from_bytes(&[])
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Storage::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Storage::Boxed(bytes) => bytes,
        }
    }

    /// The first key after all keys that begin with this one; none if there is no such key.
    pub fn successor_of_prefix(&self) -> Option<Self> {
        let bytes = self.as_bytes();
        let last = bytes.iter().rposition(|byte| *byte != 0xFF)?;
        let mut next = Self::from_bytes(&bytes[..=last]);
        match &mut next.0 {
            Storage::Inline { bytes, .. } => bytes[last] += 1,
            Storage::Boxed(bytes) => bytes[last] += 1,
        }
        Some(next)
    }

    /// Bytes held outside the key itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Storage::Inline { .. } => 0,
            Storage::Boxed(bytes) => bytes.len(),
        }
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::lowest()
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("x")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_follows_a_prefix() {
        let key = |bytes: &[u8]| Key::from_bytes(bytes);
        assert_eq!(key(&[1, 2, 0xFF]).successor_of_prefix(), Some(key(&[1, 3])));
        assert_eq!(key(&[0xFF, 0xFF]).successor_of_prefix(), None);
        assert!(key(&[9; 30]) > key(&[9; 23]) && key(&[9; 30]) < key(&[10]));
    }
}
