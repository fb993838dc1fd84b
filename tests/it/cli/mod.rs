//! The real program against a scripted server that plays the API.

mod chat;
mod failures;
mod login;
mod queue;
mod scripted;
mod telemetry;
mod verbs;
