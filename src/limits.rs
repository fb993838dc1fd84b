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

// --- repository context and toolbox -----------------------------------------------------------------------------

/// A target or a path of a file tool, in characters.
pub const REPO_PATH_MAX_CHARS: usize = 4096;
/// Nested directories below the root that a scope may have.
pub const REPO_DEPTH_MAX: usize = 16;
/// Components of a target: the directories and a file.
pub const REPO_TARGET_PARTS_MAX: usize = REPO_DEPTH_MAX + 1;
/// Directories that a file tool descends below the root.
pub const FILE_DEPTH_MAX: usize = 64;
/// One `AGENTS.md`.
pub const INSTRUCTION_FILE_MAX: usize = 64 * KIB;
/// All `AGENTS.md` of a scope together.
pub const INSTRUCTIONS_TOTAL_MAX: usize = 128 * KIB;
/// Files that command suggestions are read from.
pub const COMMAND_SOURCES_MAX: usize = 32;
/// One such file.
pub const COMMAND_SOURCE_MAX: usize = 64 * KIB;
/// All such files together.
pub const COMMAND_SOURCES_TOTAL_MAX: usize = 256 * KIB;
/// Command suggestions of one report.
pub const COMMAND_CANDIDATES_MAX: usize = 32;
/// A suggested command, in characters.
pub const COMMAND_CANDIDATE_MAX_CHARS: usize = 4096;
/// A serialised repository context report.
pub const CONTEXT_REPORT_MAX: usize = 256 * KIB;
/// Git metadata that is copied for one report.
pub const GIT_COPY_MAX: usize = 64 * MIB;
/// Files and directories of that copy.
pub const GIT_COPY_ENTRIES_MAX: usize = 16_384;
/// Time for the copy.
pub const GIT_COPY_TIMEOUT: Duration = Duration::from_millis(2500);
/// Time for the copy and the reading of its state together.
pub const GIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A repository's `config`; larger ones are refused.
pub const GIT_CONFIG_MAX: usize = 256 * KIB;
/// Readers of Git state that may hang at once before new ones are refused.
pub const GIT_STUCK_MAX: usize = 4;
/// A patch of the working tree.
pub const DIFF_MAX: usize = MIB;
/// A file that a patch shows line by line; larger ones are named only.
pub const DIFF_FILE_MAX: usize = 4 * MIB;
/// Time for a patch.
pub const DIFF_TIMEOUT: Duration = Duration::from_secs(20);
/// Manifests and lockfiles hashed for one receipt, together.
pub const IDENTITY_TOTAL_MAX: usize = 4 * MIB;
/// Text of one `read` call.
pub const READ_MAX: usize = 64 * KIB;
/// Bytes that one `read` call looks through to reach its first line.
pub const READ_SCAN_MAX: usize = 256 * MIB;
/// An image that `read` hands back.
pub const READ_IMAGE_MAX: usize = 5 * MIB;
/// A file that `write` or `edit` makes.
pub const WRITE_MAX: usize = 4 * MIB;
/// Replacements of one `edit` call.
pub const EDITS_MAX: usize = 100;
/// Entries that one `ls` call lists.
pub const LS_MAX: usize = 500;
/// Results of one `find` or `grep` call.
pub const SEARCH_RESULTS_MAX: usize = 200;
/// Files and directories that one search visits.
pub const SEARCH_ENTRIES_MAX: usize = 200_000;
/// A file that `grep` looks into.
pub const SEARCH_FILE_MAX: usize = 4 * MIB;
/// Text of one search answer.
pub const SEARCH_OUTPUT_MAX: usize = 64 * KIB;
/// Characters of one line that `grep` shows.
pub const SEARCH_LINE_MAX_CHARS: usize = 500;
/// Lines around a hit.
pub const SEARCH_CONTEXT_MAX: usize = 10;
/// Time for one search.
pub const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
/// A `.gitignore` that a search reads; a larger one is not applied.
pub const IGNORE_FILE_MAX: usize = 256 * KIB;
/// A search pattern, in bytes.
pub const SEARCH_PATTERN_MAX: usize = 1024;
/// One message on the toolbox's streams.
pub const TOOLBOX_FRAME_MAX: usize = 16 * MIB;
/// Requests that a toolbox works on at once; more wait on the stream.
pub const TOOLBOX_CONCURRENCY: usize = 8;
/// Files laid out read-only for the commands of one turn.
pub const LAYOUT_FILES_MAX: usize = 10_000;
/// Bytes laid out for one turn.
pub const LAYOUT_TOTAL_MAX: usize = 512 * MIB;
