//! The real Pi, driven through the runtime against a model of the test's own.

mod harness;
mod turns;
