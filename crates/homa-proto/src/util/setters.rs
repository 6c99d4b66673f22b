//! Methods that change one field of a structure of options: outside their crate these cannot be
//! written as literals, so that they may grow.

/// Gives a structure a method per field. The type that a method takes may be `impl Into` that of
/// the field.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($of:ty { $($field:ident: $kind:ty),* $(,)? }) => {
        impl $of {
            $(
                #[doc = concat!(
                    "Sets [`", stringify!($field), "`](Self#structfield.",
                    stringify!($field), ")."
                )]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}
