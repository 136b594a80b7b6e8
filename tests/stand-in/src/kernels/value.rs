//! [`Value`]: numbers as they lie in device memory.

/// A number that kernels read and write.
pub(crate) trait Value: Copy {
    const BYTES: usize;

    /// Takes [`BYTES`](Self::BYTES) bytes; 0 if there are fewer.
    fn from_bytes(bytes: &[u8]) -> Self;

    fn put(self, bytes: &mut Vec<u8>);
}

macro_rules! values {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const BYTES: usize = size_of::<Self>();

            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or_else(Self::default, |bytes| Self::from_ne_bytes(*bytes))
            }

            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

values!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);
