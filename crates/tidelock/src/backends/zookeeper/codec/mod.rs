//! What is written into the tree of ZooKeeper, and read from it.
//!
//! | file | what |
//! |---|---|
//! | `paths` | names of locks as paths |
//! | `nodes` | names of nodes in a line, as Curator and kazoo write them |

pub(super) mod nodes;
pub(super) mod paths;
