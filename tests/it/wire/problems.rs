//! The table of errors, in one place.

use bazilion::error::Code;
use bazilion::http::problem::status;

/// Status, and every code that answers with it.
const TABLE: &[(u16, &str)] = &[
    (400, "malformed_request"),
    (401, "unauthenticated credential_expired credential_revoked"),
    (
        403,
        "forbidden insufficient_scope communication_denied csrf_failed",
    ),
    (404, "not_found"),
    (405, "method_not_allowed"),
    (
        409,
        "request_conflict item_changed item_not_editable control_conflict uncertain_items conversation_conflict \
         conversation_request_conflict agent_busy agent_turn_active agent_archived ambiguous_agent approval_conflict \
         revision_conflict workspace_busy workspace_recovery_required team_not_empty item_not_uncertain \
         instructions_incomplete handoff_required already_exists last_owner",
    ),
    (410, "payload_expired"),
    (413, "body_too_large"),
    (415, "unsupported_media_type"),
    (422, "invalid_input"),
    (429, "queue_capacity agent_loop_limit rate_limited"),
    (500, "internal"),
    (503, "not_ready outcome_unknown"),
    (507, "insufficient_storage"),
];

#[test]
fn every_code_has_the_status_of_the_table_and_the_table_knows_every_code() {
    let mut expected: Vec<(u16, &str)> = TABLE
        .iter()
        .flat_map(|(status, codes)| codes.split_whitespace().map(move |code| (*status, code)))
        .collect();
    let mut found: Vec<(u16, &str)> = Code::ALL
        .iter()
        .map(|code| (status(*code).as_u16(), code.as_str()))
        .collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
}
