//! Enums that have a number on the wire and a name for people.

/// Declares an enum whose variants carry the number of their AIDL twin and the name that JSON, the
/// command line and texts use.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $type:ident { $($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum $type { $($(#[$doc])* $variant = $number,)* }

        impl $type {
            /// Every variant, in the order of the numbers.
            pub const ALL: &'static [$type] = &[$($type::$variant,)*];

            /// The name in JSON, on the command line and in texts.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// The variant of a name.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.iter().copied().find(|v| v.name() == name)
            }

            /// The variant of a number from the wire.
            pub fn from_number(number: i32) -> Option<$type> {
                $type::ALL.iter().copied().find(|v| *v as i32 == number)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
