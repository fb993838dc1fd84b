//! Every number of the specification, once. Sizes are bytes unless the name says otherwise; times are `Duration`.
//!
//! Database CHECK constraints repeat a few of these; a test compares the two.

use std::time::Duration;

/// Bytes in a KiB.
pub const KIB: usize = 1024;
/// Bytes in a MiB.
pub const MIB: usize = 1024 * KIB;

// --- database ---------------------------------------------------------------------------------------------------

/// Attempts of one transaction before a serialization failure is reported.
pub const TX_ATTEMPTS: u32 = 12;
/// First pause between two attempts; it doubles, with full jitter.
pub const TX_BACKOFF_FIRST: Duration = Duration::from_millis(2);
/// Longest pause between two attempts.
pub const TX_BACKOFF_MAX: Duration = Duration::from_millis(250);
/// How long a request waits for a database connection.
pub const DB_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Wake-ups kept for a slow reader; beyond it the reader looks at the database itself.
pub const WAKE_BUFFER: usize = 1024;

// --- providers, teams, agents -----------------------------------------------------------------------------------

/// Models that one provider may list.
pub const PROVIDER_MODELS_MAX: usize = 100;
/// USER.md of a Team, in bytes (`domain.md`, Team).
pub const USER_MD_MAX: usize = 12_000;
/// One persona document of a profile, in bytes.
pub const PERSONA_MAX: usize = 64 * KIB;
/// A name or a title, in characters.
pub const TITLE_MAX_CHARS: usize = 200;
/// An Agent's name, in characters.
pub const AGENT_NAME_MAX_CHARS: usize = 100;
/// Shortest prefix of an id that names an Agent.
pub const AGENT_ID_PREFIX_MIN: usize = 8;

// --- queue and approvals ------------------------------------------------------------------------------------------

/// Open items of one Agent.
pub const AGENT_OPEN_ITEMS_MAX: usize = 20;
/// Text of one item, in UTF-8 bytes.
pub const ITEM_TEXT_MAX: usize = 64 * KIB;
/// Files of one item.
pub const ITEM_FILES_MAX: usize = 16;
/// All files of one item together, in bytes.
pub const ITEM_FILE_BYTES_MAX: usize = 25 * MIB;
/// A file's name, in characters.
pub const FILE_NAME_MAX_CHARS: usize = 255;
/// A file's type, in characters.
pub const MIME_TYPE_MAX_CHARS: usize = 200;
/// Body of a submission, in bytes.
pub const QUEUE_BODY_MAX: usize = 36 * MIB;
/// One stored piece of a file, in bytes.
pub const BLOB_CHUNK: usize = 256 * KIB;
/// Bodies with files that one process takes in at a time; more wait their turn.
pub const UPLOADS_AT_ONCE: usize = 8;
/// A page of the queue, at most and by default.
pub const QUEUE_PAGE_MAX: usize = 100;
pub const QUEUE_PAGE_DEFAULT: usize = 50;
/// Characters of a diagnostic's message.
pub const DIAGNOSTIC_MAX_CHARS: usize = 500;
/// How long text and bytes of an ended item are kept.
pub const PAYLOAD_KEPT: Duration = Duration::from_hours(7 * 24);
/// Items whose payload one background step expires.
pub const EXPIRY_BATCH: i64 = 100;
/// Time an approval waits for a decision.
pub const APPROVAL_LIFE: Duration = Duration::from_hours(24);
/// Lease of a process on its claims, and how often it is renewed.
pub const CLAIM_LEASE: Duration = Duration::from_secs(30);
pub const CLAIM_RENEWAL: Duration = Duration::from_secs(10);
/// Pause before a head that could not start is looked at again without a wake-up.
pub const GIVE_BACK_PAUSE: Duration = Duration::from_secs(1);
/// How long durable live events are kept.
pub const EVENTS_KEPT: Duration = Duration::from_hours(1);
/// Events that one background step prunes.
pub const EVENTS_BATCH: i64 = 1000;
/// Events of one catch-up read.
pub const EVENTS_PAGE: i64 = 500;
