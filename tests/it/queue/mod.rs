//! The follow-up queue on the real database.

mod acceptance;
mod approvals;
mod controls;
mod cuts;
mod edits;
mod events;
mod limits;
mod looking;
mod model;
mod plain;
mod plans;
mod policy;
mod races;
mod recovery;
mod retention;
mod table;
