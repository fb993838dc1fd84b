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

// --- runtime ----------------------------------------------------------------------------------------------------

/// Longest line that Pi may write, on its standard output or into a session file; images travel inside lines.
pub const PI_LINE_MAX: usize = 64 * MIB;
/// Entries of one session file; a longer conversation must be continued in a new one.
pub const PI_SESSION_ENTRIES_MAX: usize = 200_000;
/// Size of one session file.
pub const PI_SESSION_MAX: usize = 512 * MIB;
/// How long Pi may take from its start to its first answer.
pub const PI_READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long Pi may take to accept a prompt.
pub const PI_PROMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an aborted turn may take to settle before its process is ended.
pub const PI_ABORT_WAIT: Duration = Duration::from_secs(20);
/// How long Pi may take to exit after its input closed, and again after SIGTERM.
pub const PI_EXIT_WAIT: Duration = Duration::from_secs(2);
/// Old-space limit of the Node process, in MiB.
pub const PI_HEAP_MIB: usize = 1024;
/// Events and lines that wait for a slow reader before Pi is held back.
pub const PI_EVENT_BUFFER: usize = 256;
/// Last part of Pi's standard error that is kept for a diagnosis.
pub const PI_STDERR_KEPT: usize = 8 * KIB;
/// One tool call's arguments as they arrive from Pi.
pub const TOOL_CALL_MAX: usize = 16 * MIB;
/// One request to a model provider.
pub const MODEL_REQUEST_MAX: usize = 64 * MIB;
/// What is read of a provider's error answer.
pub const MODEL_ERROR_MAX: usize = 64 * KIB;
/// How long connecting to a provider may take.
pub const MODEL_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A line of a model's event stream beyond which its token counts are not looked for.
pub const MODEL_EVENT_MAX: usize = MIB;
/// Silence of a model that ends a turn (the default of a home's setting).
pub const MODEL_SILENCE: Duration = Duration::from_secs(120);
/// Attempts that Pi makes for one model request after transient failures.
pub const MODEL_RETRIES: u32 = 3;
/// Context window of a model that does not say its own, in tokens.
pub const MODEL_CONTEXT_WINDOW: u32 = 128_000;
/// Longest answer of a model that does not say its own, in tokens.
pub const MODEL_MAX_TOKENS: u32 = 16_384;
/// One file of the pinned engine, packed; the largest is Node with 52 MB.
pub const ENGINE_TARBALL_MAX: u64 = 128 * MIB as u64;
/// All files of the pinned engine, unpacked.
pub const ENGINE_UNPACKED_MAX: u64 = 512 * MIB as u64;
/// How long the self-test of a new engine may take.
pub const ENGINE_SELFTEST_TIMEOUT: Duration = Duration::from_secs(60);
