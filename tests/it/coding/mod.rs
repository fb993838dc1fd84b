//! Commands and receipts, in real containers.

mod command;
mod inspection;
mod recovery;
mod retention;
