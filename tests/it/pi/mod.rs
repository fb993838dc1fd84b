//! The real Pi, driven through the runtime against a model of the test's own.

mod endings;
mod files;
mod harness;
mod installing;
mod stand_in;
mod turns;
