//! The pages: what they show, and their doors over the real router and database.

mod chat;
mod pages;
mod sign_in;
pub mod site;
