//! Whether this process may still act on what it claimed.
//!
//! - The last confirmed renewal of its lease is aged by the boot-time clock, which counts sleep and cannot be set.
//! - Asked before each engine call; a process that was away too long touches nothing more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Code, Error, Result};
use crate::limits;

/// The life of this process, as it knows it. Shared by the heartbeat and every turn.
pub struct Liveness {
    clock: Arc<dyn Clock>,
    /// Boot-time milliseconds of the last renewal that the database confirmed.
    renewed_ms: AtomicU64,
    lost: AtomicBool,
}

impl Liveness {
    /// A life that was registered just now.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let renewed_ms = AtomicU64::new(millis(clock.boottime()));
        Self {
            clock,
            renewed_ms,
            lost: AtomicBool::new(false),
        }
    }

    /// The moment to hand to [`Liveness::renewed`]: taken *before* the renewal is sent, so its age is never
    /// underestimated.
    pub fn moment(&self) -> Duration {
        self.clock.boottime()
    }

    /// The database confirmed a renewal that was sent at `moment`.
    pub fn renewed(&self, moment: Duration) {
        self.renewed_ms.fetch_max(millis(moment), Ordering::SeqCst);
    }

    /// Somebody judged this life ended. Final.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Whether this process may act.
    pub fn is_alive(&self) -> bool {
        let age =
            millis(self.clock.boottime()).saturating_sub(self.renewed_ms.load(Ordering::SeqCst));
        !self.lost.load(Ordering::SeqCst) && age < millis(limits::RENEWAL_AGE_MAX)
    }

    /// The same as a refusal.
    pub fn check(&self) -> Result<()> {
        if self.is_alive() {
            return Ok(());
        }
        Err(Error::refused(
            Code::NotReady,
            "This process could not renew its lease in time; it starts nothing more.",
        ))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Held(Mutex<Duration>);

    impl Clock for Held {
        fn now(&self) -> time::OffsetDateTime {
            time::OffsetDateTime::UNIX_EPOCH
        }
        fn boottime(&self) -> Duration {
            *self.0.lock().unwrap()
        }
    }

    #[test]
    fn a_process_acts_only_while_its_last_confirmed_renewal_is_young() {
        let clock = Arc::new(Held(Mutex::new(Duration::from_secs(100))));
        let life = Liveness::new(clock.clone());
        *clock.0.lock().unwrap() += limits::RENEWAL_AGE_MAX - Duration::from_millis(1);
        assert!(life.is_alive());
        let sent = life.moment();
        *clock.0.lock().unwrap() += Duration::from_millis(1);
        assert!(life.check().is_err());
        life.renewed(sent);
        assert!(life.is_alive());
        life.lose();
        life.renewed(life.moment());
        assert!(!life.is_alive());
    }
}
