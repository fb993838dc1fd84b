//! The instance: what it is, its homes, and the way back in for the person who runs it.

pub mod api;
pub mod first;
pub mod here;
pub mod home;
pub mod restored;
mod store;
pub mod verbs;
pub mod ways_in;
