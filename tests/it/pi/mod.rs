//! The real Pi, driven through the runtime against a model of the test's own.

mod endings;
mod harness;
mod turns;
