//! One definition for two facades: what a method of an async type is, its blocking twin is too.
//!
//! `both! { impl Mutex { … } }` writes the methods as they stand for [`Mutex`](crate::Mutex), and each of them again
//! for [`blocking::Mutex`](crate::blocking::Mutex), where an `async fn` blocks and types are those of
//! [`blocking`](crate::blocking). The twin's documentation is the first line and a link, so a first line is a sentence.
//! Methods that differ between the two, such as `run`, stand outside.

/// Defines methods of an async type and of its blocking twin.
macro_rules! both {
    (impl $Type:ident { $($methods:tt)* }) => {
        impl $Type {
            $($methods)*
        }

        const _: () = {
            #[allow(unused_imports, reason = "each type needs some of them")]
            use $crate::api::blocking::{Builder, Election, Guard, Guards, Locks, Multi, Mutex, Once, RwLock, Semaphore};
            impl $Type {
                $crate::api::facade::twins!($Type; $($methods)*);
            }
        };
    };
}

/// The blocking twins of methods, one after the other.
macro_rules! twins {
    ($Type:ident;) => {};

    ($Type:ident; #[doc = $summary:literal] $(#[$more:meta])*
     pub async fn $name:ident(&$this:ident $(, $arg:ident: $of:ty)*) -> $returns:ty $body:block $($rest:tt)*) => {
        $crate::api::facade::documented! { $Type $name $summary
            pub fn $name(&$this $(, $arg: $of)*) -> $returns {
                $crate::api::blocking::block_on($this.inner.$name($($arg),*)).map($crate::api::blocking::Twin::twin)
            }
        }
        $crate::api::facade::twins!($Type; $($rest)*);
    };

    ($Type:ident; #[doc = $summary:literal] $(#[$more:meta])*
     pub async fn $name:ident($this:ident $(, $arg:ident: $of:ty)*) -> $returns:ty $body:block $($rest:tt)*) => {
        $crate::api::facade::documented! { $Type $name $summary
            pub fn $name($this $(, $arg: $of)*) -> $returns {
                $crate::api::blocking::block_on($this.inner.$name($($arg),*)).map($crate::api::blocking::Twin::twin)
            }
        }
        $crate::api::facade::twins!($Type; $($rest)*);
    };

    ($Type:ident; #[doc = $summary:literal] $(#[$more:meta])*
     pub async fn $name:ident($($arg:ident: $of:ty),*) -> $returns:ty $body:block $($rest:tt)*) => {
        $crate::api::facade::documented! { $Type $name $summary
            pub fn $name($($arg: $of),*) -> $returns {
                $crate::api::blocking::block_on($crate::$Type::$name($($arg),*)).map($crate::api::blocking::Twin::twin)
            }
        }
        $crate::api::facade::twins!($Type; $($rest)*);
    };

    ($Type:ident; #[doc = $summary:literal] $(#[$more:meta])*
     pub fn $name:ident(&$this:ident $(, $arg:ident: $of:ty)*) -> $returns:ty $body:block $($rest:tt)*) => {
        $crate::api::facade::documented! { $Type $name $summary
            pub fn $name(&$this $(, $arg: $of)*) -> $returns {
                $crate::api::blocking::Twin::twin($this.inner.$name($($arg),*))
            }
        }
        $crate::api::facade::twins!($Type; $($rest)*);
    };

    ($Type:ident; #[doc = $summary:literal] $(#[$more:meta])*
     pub fn $name:ident($this:ident $(, $arg:ident: $of:ty)*) -> $returns:ty $body:block $($rest:tt)*) => {
        $crate::api::facade::documented! { $Type $name $summary
            pub fn $name($this $(, $arg: $of)*) -> $returns {
                $crate::api::blocking::Twin::twin($this.inner.$name($($arg),*))
            }
        }
        $crate::api::facade::twins!($Type; $($rest)*);
    };

    ($Type:ident; #[doc = $summary:literal] $(#[$more:meta])*
     pub fn $name:ident($($arg:ident: $of:ty),*) -> $returns:ty $body:block $($rest:tt)*) => {
        $crate::api::facade::documented! { $Type $name $summary
            pub fn $name($($arg: $of),*) -> $returns {
                $crate::api::blocking::Twin::twin($crate::$Type::$name($($arg),*))
            }
        }
        $crate::api::facade::twins!($Type; $($rest)*);
    };
}

/// A twin with its documentation.
macro_rules! documented {
    ($Type:ident $name:ident $summary:literal $method:item) => {
        #[doc = $summary]
        #[doc = ""]
        #[doc = concat!(
            " See [`", stringify!($Type), "::", stringify!($name), "`](crate::", stringify!($Type), "::",
            stringify!($name), ")."
        )]
        $method
    };
}

pub(crate) use both;
pub(crate) use documented;
pub(crate) use twins;
