-- What a request needs of the database in one round trip. Each function is called outside a transaction, which makes the
-- call one, and enters its role until its end: the login may do nothing but call. Row-level security holds as everywhere.

-- Accepts plain inputs of one home that wait together: text only, the Agent named by its id, the user allowed by an edge
-- of the Team. Gives one row for each input that was stored. An input without a row changed nothing: whatever is not
-- plain about it (a retry, a refusal, a hold, a full home) is decided by the general way, which asks everything again.
--
-- Order: lanes (by id), then Agents (by id), item, audit, and last the home's counters. The statement behind the locks
-- begins with a snapshot of its own, so it sees whatever the lock waited for.
CREATE FUNCTION submit_inputs(
    in_home uuid,
    clock_offset double precision,
    digest_version bytea,
    agents uuid[],
    items uuid[],
    requests uuid[],
    conversations uuid[],
    selections bigint[],
    texts text[],
    -- What the digest covers behind version and place.
    rests bytea[],
    operators uuid[],
    spans text[]
) RETURNS TABLE (
    place bigint,
    team_id uuid,
    "position" bigint,
    created_at timestamptz,
    paused boolean,
    phase text
)
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
-- The plan is made once in a connection's life, perhaps over tables that were still empty: loops over indexes only.
SET enable_seqscan = 'off'
SET enable_hashjoin = 'off'
SET enable_mergejoin = 'off'
AS $$
#variable_conflict use_column
DECLARE
    at timestamptz;
    stored integer;
BEGIN
    PERFORM set_config('role', 'bazilion_server', true), set_config('bazilion.home_id', in_home::text, true);
    PERFORM FROM agent_queues q WHERE q.home_id = in_home AND q.agent_id = ANY (agents)
        ORDER BY q.agent_id FOR NO KEY UPDATE;
    PERFORM FROM agents a WHERE a.home_id = in_home AND a.id = ANY (agents)
        ORDER BY a.id FOR NO KEY UPDATE;
    at := clock_timestamp() + clock_offset * interval '1 second';
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT *, row_number() OVER (PARTITION BY i.request ORDER BY i.place) AS attempt
        FROM unnest(agents, items, requests, conversations, selections, texts, rests, operators, spans) WITH ORDINALITY
            AS i (agent, item, request, conversation, selection, text, rest, operator, span, place)
    ), allowed AS MATERIALIZED (
        SELECT asked.*, a.team_id, q.next_position, q.paused, q.phase, cardinality(q.open) AS used,
               row_number() OVER (PARTITION BY asked.agent ORDER BY asked.place) AS nth,
               row_number() OVER (ORDER BY asked.place) AS nth_of_home
        FROM asked
        JOIN agents a ON a.home_id = in_home AND a.id = asked.agent
        JOIN agent_queues q ON q.home_id = in_home AND q.agent_id = asked.agent
        WHERE asked.attempt = 1 AND a.status = 'active'
          AND a.conversation_id = asked.conversation AND a.selection_revision = asked.selection
          -- Both as values, since as joins the planner may read every receipt or edge of the home.
          AND (SELECT i.id FROM queue_items i WHERE i.home_id = in_home AND i.request_id = asked.request) IS NULL
          AND 'allow' = (
              SELECT e.effect FROM policy_edges e
              WHERE e.home_id = in_home AND e.team_id = a.team_id AND e.source = 'user' AND e.source_agent_id IS NULL
                AND e.target = 'agent' AND e.target_agent_id = asked.agent)
    ), fit AS MATERIALIZED (
        SELECT allowed.*
        FROM allowed JOIN home_usage u ON u.home_id = in_home
        WHERE used + nth <= 20
          AND u.open_items + nth_of_home <= u.max_open_items AND u.receipts + nth_of_home <= u.max_receipts
    ), made AS (
        INSERT INTO queue_items
            (home_id, id, agent_id, team_id, conversation_id, source, request_id, digest, position, status, text,
             submitted_by, span, created_at, updated_at)
        SELECT in_home, item, agent, team_id, conversation, 'http', request,
               sha256(digest_version || uuid_send(agent) || uuid_send(team_id) || uuid_send(conversation) || rest),
               next_position + nth - 1, 'pending', text, operator, span, at, at
        FROM fit
    ), lanes AS (
        UPDATE agent_queues q SET
            open = q.open || added.items, next_position = q.next_position + cardinality(added.items),
            ready_at = CASE WHEN NOT q.paused AND coalesce(q.phase = 'approved', true) THEN coalesce(q.ready_at, at) END
        FROM (SELECT agent, array_agg(item ORDER BY place) AS items FROM fit GROUP BY agent) AS added
        WHERE q.home_id = in_home AND q.agent_id = added.agent
    ), noted AS (
        INSERT INTO audit (home_id, at, actor, actor_id, origin, action, target, outcome)
        SELECT in_home, at, CASE WHEN operator IS NULL THEN 'system' ELSE 'operator' END, operator, 'http',
               'queue.submit', item::text, 'pending'
        FROM fit
    )
    SELECT fit.place, fit.team_id, next_position + nth - 1, at, fit.paused, fit.phase FROM fit;
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF stored = 0 THEN
        RETURN;
    END IF;
    UPDATE home_usage u SET open_items = open_items + stored, receipts = receipts + stored WHERE u.home_id = in_home;
END
$$;

-- The same as before, in a language that keeps its plan.
CREATE OR REPLACE FUNCTION append_event(
    in_home uuid, of_agent uuid, event_kind text, event_payload jsonb, event_at timestamptz
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    UPDATE agents SET event_seq = event_seq + 1 WHERE home_id = in_home AND id = of_agent RETURNING event_seq INTO number;
    IF FOUND THEN
        INSERT INTO agent_events (home_id, agent_id, seq, kind, payload, at)
        VALUES (in_home, of_agent, number, event_kind, event_payload, event_at);
    END IF;
    RETURN number;
END
$$;

-- What presented API tokens stand for, whichever homes they belong to.
CREATE FUNCTION present_tokens(presented bytea[]) RETURNS TABLE (
    token_hash bytea,
    home_id uuid,
    id uuid,
    operator_id uuid,
    role text,
    role_limit text,
    scopes text[],
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked boolean,
    instance_admin boolean,
    asked_at timestamptz
)
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = 'off'
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('role', 'bazilion_system', true);
    RETURN QUERY
    SELECT t.token_hash, t.home_id, t.id, t.operator_id, m.role, t.role_limit, t.scopes, t.expires_at, t.last_used_at,
           t.revoked_at IS NOT NULL OR o.disabled_at IS NOT NULL, t.instance_admin AND o.instance_admin,
           clock_timestamp()
    FROM api_tokens t
    JOIN memberships m ON m.home_id = t.home_id AND m.operator_id = t.operator_id
    JOIN operators o ON o.id = t.operator_id
    WHERE t.token_hash = ANY (presented);
END
$$;
