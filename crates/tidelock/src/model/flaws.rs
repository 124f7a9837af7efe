//! Mistakes made on purpose, as hooks: how [`testing::defect`](crate::testing) gets into code that
//! others read.
//!
//! Each place that can be switched wrong has a `Flaws` with a method per mistake. Without feature
//! `testing` the type is empty, every method is a constant `false`, and the compiler removes the branch:
//! to read what the library does, skip every line that says `flaws`.

/// Makes a type `Flaws` from a table of hooks: the method, and the defect that it asks for.
macro_rules! flaws {
    ($($(#[$doc:meta])* $hook:ident => $defect:ident,)*) => {
        /// The mistakes that are made here on purpose. None, unless a test asked for one.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Flaws {
            #[cfg(feature = "testing")]
            defects: $crate::testing::defect::Defects,
        }

        impl Flaws {
            $(
                $(#[$doc])*
                #[inline]
                pub(crate) fn $hook(self) -> bool {
                    #[cfg(feature = "testing")]
                    {
                        self.defects.has($crate::testing::defect::Defect::$defect)
                    }
                    #[cfg(not(feature = "testing"))]
                    {
                        false
                    }
                }
            )*
        }

        #[cfg(feature = "testing")]
        impl From<$crate::testing::defect::Defects> for Flaws {
            fn from(defects: $crate::testing::defect::Defects) -> Self {
                Self { defects }
            }
        }
    };
}

pub(crate) use flaws;
