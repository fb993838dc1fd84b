//! The API as a program sees it: the real router, real tokens, a database of its own.

mod attention;
mod door;
mod doors;
mod people;
mod policy;
mod queue;
