//! What tests share.

pub mod db;
pub mod model;
pub mod pi_stand_in;
