//! From a violated constraint to the refusal it stands for.

use crate::error::{Error, Result};

/// Maps the violation of one named constraint, and passes everything else through unread: a serialization failure
/// must reach the retry loop as it is.
pub trait OnConstraint<T> {
    /// `refusal` is built only when the named constraint was violated.
    fn on_constraint(self, name: &str, refusal: impl FnOnce() -> Error) -> Result<T>;
}

impl<T> OnConstraint<T> for Result<T, sqlx::Error> {
    fn on_constraint(self, name: &str, refusal: impl FnOnce() -> Error) -> Result<T> {
        self.map_err(|error| match &error {
            sqlx::Error::Database(db) if db.constraint() == Some(name) => refusal(),
            _ => Error::Db(error),
        })
    }
}

/// A guarded UPDATE that matched nothing lost against somebody else.
pub fn expect_one(affected: u64, refusal: impl FnOnce() -> Error) -> Result<()> {
    if affected == 1 {
        Ok(())
    } else {
        Err(refusal())
    }
}

/// Whether the error is the violation of this constraint.
pub fn is_violation(error: &Error, name: &str) -> bool {
    matches!(error, Error::Db(sqlx::Error::Database(db)) if db.constraint() == Some(name))
}
