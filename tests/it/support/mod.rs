//! What tests share.

pub mod db;
pub mod model;
