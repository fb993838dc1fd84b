//! The pages in a real browser, by what a person sees and presses.

mod chromium;
mod demo;
