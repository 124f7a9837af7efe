//! What a library must have to be driven.

use std::fmt::{self, Display, Formatter};

/// Why a contestant ends before it is told to.
#[derive(Debug)]
pub(super) enum Failed {
    /// The library has no such thing.
    NoSuchThing,
    Because(String),
}

impl Failed {
    pub(super) fn because(why: impl Display) -> Self {
        Self::Because(why.to_string())
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

impl Display for Failed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchThing => f.write_str("there is no such thing in this library"),
            Self::Because(why) => f.write_str(why),
        }
    }
}

/// What a lock is wanted for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Use {
    Alone,
    Read,
    Write,
    /// To lead an election: taken again, it goes to the next candidate.
    Lead,
    /// The same by asking again and again, as client-go does.
    Poll,
}

/// Locks by name.
pub(super) trait Library: Send + Sync + Sized + 'static {
    type Lock: Lock;

    /// A lock for one task.
    fn lock(&self, name: &str, wanted: Use) -> impl Future<Output = Result<Self::Lock, Failed>> + Send;

    /// Renews what is held, for those who must do so themselves. Called three times in a lease.
    fn renew(&self, names: &[String]) -> impl Future<Output = Result<(), Failed>> + Send {
        let _ = names;
        async { Ok(()) }
    }

    /// One change on the server, with nothing around it.
    fn trip(&self, name: &str) -> impl Future<Output = Result<(), Failed>> + Send {
        let _ = name;
        async { Err(Failed::NoSuchThing) }
    }

    /// Puts up for sale more than anybody buys.
    fn open(&self, name: &str) -> impl Future<Output = Result<(), Failed>> + Send {
        let _ = name;
        async { Err(Failed::NoSuchThing) }
    }

    /// Sells one to an order that has not been before.
    fn sell(&self, name: &str, order: u64) -> impl Future<Output = Result<(), Failed>> + Send {
        let _ = (name, order);
        async { Err(Failed::NoSuchThing) }
    }
}

/// A lock that is taken and given back by one task.
pub(super) trait Lock: Send + 'static {
    type Held: Send + 'static;

    /// Waits until it has it.
    fn take(&mut self) -> impl Future<Output = Result<Self::Held, Failed>> + Send;

    fn give_back(&mut self, held: Self::Held) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Whether it was free. Only asked while somebody else has it.
    fn attempt(&mut self) -> impl Future<Output = Result<bool, Failed>> + Send;
}
