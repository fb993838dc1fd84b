//! The follow-up queue on the real database.

mod acceptance;
