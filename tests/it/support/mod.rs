//! What tests share.

pub mod db;
pub mod queue;
pub mod docker;
pub mod model;
