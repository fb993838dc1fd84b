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

// --- command line -----------------------------------------------------------------------------------------------

/// Files of one `queue add`, `queue edit` or `agent chat`.
pub const CLI_FILES_MAX: usize = 16;
/// Bytes of those files together.
pub const CLI_FILES_BYTES_MAX: u64 = 25 * MIB as u64;
/// An upload below this many bytes is over before a bar could be read.
pub const CLI_PROGRESS_FROM: u64 = MIB as u64;
/// Longest wait for a connection.
pub const CLI_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a server before a request counts as unanswered; four times the pace of the stream's comments.
pub const CLI_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes a second of the slowest upload that is still waited for.
pub const CLI_UPLOAD_SLOWEST: u64 = 64 * KIB as u64;
/// Pages of one list before the rest is left to `--json` and a cursor.
pub const CLI_LIST_PAGES_MAX: usize = 1_000;
/// Attempts to open a broken event stream again.
pub const CLI_RECONNECT_ATTEMPTS: u32 = 8;
/// First pause between two of them; it doubles.
pub const CLI_RECONNECT_FIRST: Duration = Duration::from_millis(250);
/// Longest pause between two of them.
pub const CLI_RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Lines of a command's output on its card; the end is what is shown.
pub const CLI_CARD_LINES: usize = 20;
/// Longest wait for spans and metrics to leave when a process ends.
pub const TELEMETRY_FLUSH: Duration = Duration::from_secs(3);
