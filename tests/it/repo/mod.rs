//! The toolbox against hostile and odd repositories, mostly through the real program and its protocol.

mod bed;
mod context;
mod diff;
mod git;
mod identities;
mod layout;
mod protocol;
mod tools;
