-- What the server sends for one acceptance, statement by statement, for pgbench. {home} and {operator} are filled in.
-- The lane is left with this one item, so that a long run never fills it.
\set item random(1, 281474976710655)
\set number 1000 + :client_id
\startpipeline
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL ROLE bazilion_server;
SET LOCAL bazilion.home_id = '{home}';
\endpipeline
SELECT clock_timestamp() AS now \gset
SELECT control_revision, paused, reason, changed_by, changed_at, open, phase, owner, fence, stopped_fence,
       next_position, ended, ready_at
FROM agent_queues
WHERE home_id = '{home}' AND agent_id = ('00000000-0000-7000-8000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid
FOR NO KEY UPDATE \gset lane_
SELECT id, agent_id, team_id, conversation_id, digest FROM queue_items
WHERE home_id = '{home}' AND request_id = ('00000000-0000-7000-a000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid;
SELECT team_id, status, conversation_id, selection_revision FROM agents
WHERE home_id = '{home}' AND id = ('00000000-0000-7000-8000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid
FOR NO KEY UPDATE \gset agent_
SELECT t.id AS team_id, t.policy_revision, e.source, e.source_agent_id, e.target, e.target_agent_id, e.effect
FROM teams t
LEFT JOIN policy_edges e ON e.home_id = t.home_id AND e.team_id = t.id
    AND (e.source_agent_id IS NULL OR e.source_agent_id = NULL::uuid)
    AND (e.target_agent_id IS NULL
         OR e.target_agent_id = ('00000000-0000-7000-8000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid)
WHERE t.home_id = '{home}' AND t.id = ANY (ARRAY[:agent_team_id::uuid])
ORDER BY t.id;
WITH item AS (
    INSERT INTO queue_items
        (home_id, id, agent_id, team_id, conversation_id, source, origin, request_id, digest, position, status,
         text, retained_bytes, approval_id, supersedes_id, submitted_by, span, created_at, updated_at)
    VALUES ('{home}', ('00000000-0000-7000-b000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid,
            ('00000000-0000-7000-8000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid,
            :agent_team_id::uuid, :agent_conversation_id::uuid, 'http', NULL,
            ('00000000-0000-7000-a000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid,
            decode(repeat('ab', 32), 'hex'), :lane_next_position::bigint, 'pending', 'Run the tests and fix what fails.',
            (SELECT coalesce(sum(length), 0) FROM unnest('{}'::bigint[]) AS length),
            NULL, NULL, '{operator}', NULL, :now::timestamptz, :now::timestamptz)
    RETURNING home_id
), files AS (
    INSERT INTO queue_attachments (home_id, id, item_id, ordinal, name, mime_type, byte_length, sha256, blob)
    SELECT '{home}', file.id, ('00000000-0000-7000-b000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid,
           file.place - 1, file.name, file.mime_type, file.byte_length, file.sha256, file.sha256
    FROM unnest('{}'::uuid[], '{}'::text[], '{}'::text[], '{}'::bigint[], '{}'::bytea[]) WITH ORDINALITY
        AS file (id, name, mime_type, byte_length, sha256, place)
    RETURNING id
), lane AS (
    UPDATE agent_queues SET
        open = ARRAY[('00000000-0000-7000-b000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid],
        phase = NULL, next_position = :lane_next_position::bigint + 1, ended = :lane_ended::integer,
        ready_at = :now::timestamptz
    WHERE home_id = '{home}' AND agent_id = ('00000000-0000-7000-8000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid
    RETURNING agent_id
), noted AS (
    INSERT INTO audit (home_id, at, actor, actor_id, origin, action, target, outcome)
    VALUES ('{home}', :now::timestamptz, 'operator', '{operator}', 'http', 'queue.submit',
            ('00000000-0000-7000-b000-' || lpad(to_hex(:item::bigint), 12, '0')), 'pending')
    RETURNING id
)
UPDATE home_usage SET
    open_items = open_items + 1, retained_bytes = retained_bytes + 0, receipts = receipts + 1
WHERE home_id = (SELECT home_id FROM item)
  AND (SELECT count(*) FROM files) = cardinality('{}'::uuid[])
  AND EXISTS (SELECT FROM lane) AND EXISTS (SELECT FROM noted)
  AND open_items + 1 <= max_open_items
  AND retained_bytes + 0 <= max_retained_bytes
  AND receipts < max_receipts
RETURNING true AS stored;
SELECT i.id, i.agent_id, i.team_id, i.conversation_id, i.source, i.request_id, i.revision, i.version,
       i.position, i.status, i.waiting_for, i.text, i.payload_retained, i.supersedes_id, i.superseded_by_id,
       i.approval_id, i.turn_id, i.submitted_by, i.origin, i.diagnostic_code, i.diagnostic_message,
       i.created_at, i.updated_at, i.started_at, i.finished_at, q.paused, q.phase
FROM unnest(ARRAY[('00000000-0000-7000-b000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid])
    WITH ORDINALITY AS wanted (id, place)
JOIN queue_items i ON i.home_id = '{home}' AND i.id = wanted.id
    AND i.agent_id = ('00000000-0000-7000-8000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid
JOIN agent_queues q ON q.home_id = i.home_id AND q.agent_id = i.agent_id
ORDER BY wanted.place;
SELECT id, item_id, name, mime_type, byte_length, sha256 FROM queue_attachments
WHERE home_id = '{home}'
  AND item_id = ANY (ARRAY[('00000000-0000-7000-b000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid])
ORDER BY item_id, ordinal;
COMMIT;
