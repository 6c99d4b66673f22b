//! Methods that change one field of a structure of options. Other crates cannot write such
//! structures as literals, so that fields can be added.

/// Gives a structure a method per field. The method's argument may be `impl Into` the type of the
/// field.
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
