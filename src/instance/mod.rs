//! The instance: what it is, its homes, and the way back in for the person who runs it.

pub mod access;
pub mod home;
pub mod restored;
