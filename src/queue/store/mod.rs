//! SQL of the queue, by aggregate.

pub mod accept;
pub mod blobs;
pub mod check;
pub mod items;
pub mod lane;
pub mod plain;
pub mod system;
