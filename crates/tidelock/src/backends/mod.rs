//! The stores. Each has the same files: `mod`, `config`, `backend`, `store`, `wake`, as far as it needs them.

pub mod memory;
