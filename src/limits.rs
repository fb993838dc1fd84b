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
