//! What tests share.

pub mod cutter;
pub mod db;
pub mod docker;
pub mod model;
pub mod pi_stand_in;
pub mod queue;
pub mod server;
pub mod turn;
