//! SQL of Teams, by aggregate.

pub mod agents;
pub mod policy;
pub mod profiles;
pub mod teams;
