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
