//! What tests share.

pub mod db;
