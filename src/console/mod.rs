//! The client side of the command line: settings, HTTP, events, and what a person or a script sees.
//!
//! - Data goes to standard output and nothing else does; prompts, notes, progress and errors go to standard error.
//! - What came from outside is shown with its control characters made visible, in JSON too.
//! - A token is sent only to the server that it was stored for, or that the caller named beside it.

pub mod client;
pub mod events;
pub mod exit;
pub mod login;
pub mod output;
pub mod shell;
pub mod upload;

pub use client::Client;
pub use exit::{Exit, Failure, Problem};
pub use output::Out;
