//! Structures: the words of a heap in device memory, each with its invariants.
//!
//! | module | structure | decides |
//! |---|---|---|
//! | `runs` | bitmap, entries, counts and sets of the runs of all classes | which blocks are free |
//! | `slabs` | the set of free slabs | which slabs are free |
//! | `cursor` | the span that an SM allocates from | nothing: tickets are hints |
//! | `ring` | the spans of a cursor | nothing |
//! | `index_set` | a hierarchy of bitmaps | membership |
//! | `moves` | operations that hide free memory for a moment | whether a search was complete |
//! | `heap_core` | the handle: the addresses of all of these | |
//! | `locate` | the run and the block of an address | |
//!
//! `orderings` names their memory orderings.

pub mod cursor;
pub mod heap_core;
pub mod index_set;
pub mod locate;
pub mod moves;
pub mod orderings;
pub mod ring;
pub mod runs;
pub mod slabs;
