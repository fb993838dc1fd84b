//! What every door of the server has in common: problem documents, extractors, headers, event streams.

mod edges;
mod events;
mod problems;
