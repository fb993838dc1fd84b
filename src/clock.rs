//! Time that never decides: display, pacing and deadlines inside one process.
//!
//! What decides (7 days, 15 minutes, a lease's end) is read from the database, see `db::tx`.

use std::time::Duration;

use time::OffsetDateTime;

/// Wall and boot-time clocks, behind a seam so that tests can hold them.
pub trait Clock: Send + Sync {
    /// Now, for display and pacing.
    fn now(&self) -> OffsetDateTime;

    /// Time since the machine booted, sleep included: the only clock that says how old a lease renewal really is.
    fn boottime(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }

    fn boottime(&self) -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(
            t.tv_sec.unsigned_abs(),
            u32::try_from(t.tv_nsec).unwrap_or(0),
        )
    }
}

/// Times on the wire: RFC 3339 in UTC with milliseconds, always three digits.
pub mod wire {
    use serde::{Serialize as _, Serializer};
    use time::OffsetDateTime;
    use time::format_description::BorrowedFormatItem;
    use time::macros::format_description;

    const FORMAT: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

    /// The text of a time.
    pub fn text(time: OffsetDateTime) -> String {
        // A year beyond four digits is the only time that this format refuses.
        time.to_offset(time::UtcOffset::UTC)
            .format(FORMAT)
            .unwrap_or_default()
    }

    /// For `#[serde(serialize_with)]` by module.
    pub fn serialize<S: Serializer>(time: &OffsetDateTime, to: S) -> Result<S::Ok, S::Error> {
        text(*time).serialize(to)
    }

    /// The same for a time that may be absent.
    pub mod option {
        use super::{OffsetDateTime, Serializer};
        use serde::Serialize as _;

        /// For `#[serde(serialize_with)]` by module.
        pub fn serialize<S: Serializer>(
            time: &Option<OffsetDateTime>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            time.map(super::text).serialize(to)
        }
    }

    #[cfg(test)]
    mod tests {
        use time::macros::datetime;

        #[test]
        fn a_time_has_three_digits_and_is_in_utc() {
            assert_eq!(
                super::text(datetime!(2026-12-01 03:00:00.5 +01:00)),
                "2026-12-01T02:00:00.500Z"
            );
            assert_eq!(
                super::text(datetime!(2026-12-01 03:00:00.123999 UTC)),
                "2026-12-01T03:00:00.123Z"
            );
        }
    }
}
