//! Commands and receipts, in real containers.

mod command;
mod recovery;
mod retention;
