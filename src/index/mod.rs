//! The secondary index: an indexing policy and an item enter, terms leave; a term is a path and a value in bytes that sort as the
//! query language orders values. Who writes and reads the entries is the shard's business; their keys are in `store::keys`.
//!
//! | what | where |
//! | --- | --- |
//! | paths as numbers | [`path`] |
//! | values as bytes that sort | [`value`] |
//! | which paths a policy includes | [`policy`] |
//! | the terms of an item, and its shape | [`terms`] |
//! | places on the earth as cells | [`cells`] |
//!
//! An undefined value has no term. What lacks a path is known by *shapes*: a shape is the set of indexed paths that an item has, every item has
//! one entry under its shape, and a container has few shapes. So the items without a path are those of the shapes without it.

pub mod cells;
pub mod path;
pub mod policy;
pub mod shape;
pub mod terms;
pub mod value;

pub use path::{PathHasher, PathId};
pub use policy::Indexer;
pub use shape::{Kind, Shape, ShapeId};
pub use terms::{DraftTerms, TermList};
