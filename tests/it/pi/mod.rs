//! The real Pi, driven through the runtime against a model of the test's own.

mod endings;
mod files;
mod gateway;
mod harness;
mod installing;
mod rehearsal;
mod stand_in;
mod turns;
