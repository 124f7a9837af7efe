//! The nodes of a claim: nearly always one, which then needs no list.

use std::{ops::Deref, slice, sync::Arc};

/// Their paths, the first one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Nodes {
    #[default]
    None,
    One(Arc<str>),
    Several(Box<[Arc<str>]>),
}

impl Deref for Nodes {
    type Target = [Arc<str>];

    fn deref(&self) -> &[Arc<str>] {
        match self {
            Self::None => &[],
            Self::One(node) => slice::from_ref(node),
            Self::Several(nodes) => nodes,
        }
    }
}

impl FromIterator<Arc<str>> for Nodes {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(nodes: I) -> Self {
        let mut nodes = nodes.into_iter();
        match (nodes.next(), nodes.next()) {
            (Some(one), None) => Self::One(one),
            (Some(one), Some(two)) => Self::Several([one, two].into_iter().chain(nodes).collect()),
            (None, _) => Self::None,
        }
    }
}
