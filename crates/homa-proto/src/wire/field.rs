//! Fields of a packet: big-endian integers at a fixed place, checked at compile time.
//!
//! A packet's header is an array of its exact length, and a field carries its offset in its type. A
//! field beyond the end of the array does not compile, so reading and writing need no bounds check
//! at run time and cannot panic on any bytes.

macro_rules! field {
    ($(#[$doc:meta])* $name:ident, $integer:ty) => {
        $(#[$doc])*
        pub(super) struct $name<const AT: usize>;

        impl<const AT: usize> $name<AT> {
            const SIZE: usize = size_of::<$integer>();

            /// The field's value.
            #[inline(always)]
            pub(super) fn get<const N: usize>(&self, bytes: &[u8; N]) -> $integer {
                const { assert!(AT + Self::SIZE <= N, "the field lies beyond the packet") };
                let mut value = [0; size_of::<$integer>()];
                value.copy_from_slice(&bytes[AT..AT + Self::SIZE]);
                <$integer>::from_be_bytes(value)
            }

            /// Replaces the field's value.
            #[inline(always)]
            pub(super) fn set<const N: usize>(&self, bytes: &mut [u8; N], value: $integer) {
                const { assert!(AT + Self::SIZE <= N, "the field lies beyond the packet") };
                bytes[AT..AT + Self::SIZE].copy_from_slice(&value.to_be_bytes());
            }
        }
    };
}

field!(
    /// One byte at offset `AT`.
    Byte,
    u8
);
field!(
    /// Two bytes from offset `AT`.
    Be16,
    u16
);
field!(
    /// Four bytes from offset `AT`.
    Be32,
    u32
);
field!(
    /// Eight bytes from offset `AT`.
    Be64,
    u64
);
