//! SQL of Teams, by aggregate.

pub mod agents;
pub mod conversations;
pub mod policy;
pub mod profiles;
pub mod teams;
