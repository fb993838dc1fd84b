-- The follow-up queue. One lane row per Agent holds the whole order and its single active slot: everything that must be
-- decided together is decided by locking that row. Lock order: lane → item → blob (in hash order) → Agent → home_usage.

-- Fencing numbers of the whole instance: each claim gets one, later than all before.
CREATE SEQUENCE queue_fences AS bigint;
GRANT USAGE, SELECT ON SEQUENCE queue_fences TO bazilion_server, bazilion_system;

CREATE TABLE agent_queues (
    home_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    control_revision bigint NOT NULL DEFAULT 0 CHECK (control_revision >= 0),
    paused boolean NOT NULL DEFAULT false,
    reason text CHECK (reason IN ('operator', 'operator_stop', 'telegram', 'interrupted', 'preparation', 'restored')),
    changed_by uuid REFERENCES operators (id),
    changed_at timestamptz,
    -- Ids of the open items in order; the first is the head. An edit replaces an id in place.
    open uuid[] NOT NULL DEFAULT '{}' CHECK (cardinality(open) <= 20),
    -- What the head is in the middle of; null while it is pending.
    phase text CHECK (phase IN ('held', 'approved', 'claimed', 'running', 'uncertain')),
    -- The process that holds the claim. The reference makes a judged process unable to claim, and a process that
    -- still holds claims impossible to forget.
    owner uuid REFERENCES incarnations (id),
    fence bigint NOT NULL DEFAULT 0,
    -- The claim that a Stop asked to end.
    stopped_fence bigint,
    next_position bigint NOT NULL DEFAULT 1,
    ended integer NOT NULL DEFAULT 0 CHECK (ended >= 0),
    -- Not null exactly when the head can be claimed; later than now while a head that could not start waits.
    ready_at timestamptz,
    PRIMARY KEY (home_id, agent_id),
    FOREIGN KEY (home_id, agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE,
    CONSTRAINT lane_pause_has_a_reason CHECK (paused = (reason IS NOT NULL)),
    CONSTRAINT lane_phase_has_a_head CHECK (phase IS NULL OR cardinality(open) > 0),
    CONSTRAINT lane_claim_has_an_owner CHECK ((owner IS NOT NULL) = coalesce(phase IN ('claimed', 'running'), false)),
    CONSTRAINT lane_uncertain_is_paused CHECK (phase IS DISTINCT FROM 'uncertain' OR paused),
    CONSTRAINT lane_ready_when_claimable CHECK (
        (ready_at IS NOT NULL) = (NOT paused AND cardinality(open) > 0 AND coalesce(phase = 'approved', true)))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
-- The claim's whole search: the next home that has work, its longest waiting lane first.
CREATE INDEX agent_queues_ready_idx ON agent_queues (home_id, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX agent_queues_owner_idx ON agent_queues (owner) WHERE owner IS NOT NULL;
CALL wall_off('agent_queues');
REVOKE DELETE ON agent_queues FROM bazilion_server;
GRANT SELECT, UPDATE ON agent_queues TO bazilion_system;

-- An Agent without a lane cannot exist.
CREATE FUNCTION insert_lane() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO agent_queues (home_id, agent_id) VALUES (NEW.home_id, NEW.id);
    RETURN NULL;
END
$$;
CREATE TRIGGER agents_have_a_lane AFTER INSERT ON agents FOR EACH ROW EXECUTE FUNCTION insert_lane();

-- One accepted input. The row is also the permanent receipt: text and bytes leave it, identity and outcome stay.
CREATE TABLE queue_items (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    agent_id uuid NOT NULL,
    -- Frozen at acceptance; no reference, since the Agent may move.
    team_id uuid NOT NULL,
    conversation_id uuid NOT NULL,
    source text NOT NULL CHECK (source IN ('http', 'telegram')),
    request_id uuid NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    position bigint NOT NULL CHECK (position > 0),
    status text NOT NULL CHECK (status IN
        ('pending', 'claimed', 'running', 'held', 'uncertain', 'completed', 'failed', 'cancelled', 'superseded')),
    revision bigint NOT NULL DEFAULT 1,
    version bigint NOT NULL DEFAULT 1,
    waiting_for text CHECK (waiting_for IN
        ('agent', 'workspace', 'recovery', 'executor', 'engine', 'provider', 'approval', 'pause')),
    text text CHECK (octet_length(text) <= 65536),
    payload_retained boolean NOT NULL DEFAULT true,
    -- Attachment bytes that count for this item against the home's limit.
    retained_bytes bigint NOT NULL DEFAULT 0 CHECK (retained_bytes BETWEEN 0 AND 26214400),
    supersedes_id uuid,
    superseded_by_id uuid,
    approval_id uuid,
    turn_id uuid,
    submitted_by uuid REFERENCES operators (id),
    origin jsonb,
    diagnostic_code text CHECK (length(diagnostic_code) BETWEEN 1 AND 64),
    diagnostic_message text CHECK (length(diagnostic_message) <= 500),
    -- Trace context of the submission; the turn links to it.
    span text CHECK (length(span) <= 256),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (home_id, id),
    CONSTRAINT queue_items_request_key UNIQUE (home_id, request_id),
    FOREIGN KEY (home_id, agent_id) REFERENCES agents (home_id, id),
    FOREIGN KEY (home_id, agent_id, conversation_id) REFERENCES conversations (home_id, agent_id, id),
    FOREIGN KEY (home_id, supersedes_id) REFERENCES queue_items (home_id, id),
    FOREIGN KEY (home_id, superseded_by_id) REFERENCES queue_items (home_id, id) DEFERRABLE INITIALLY DEFERRED,
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled', 'superseded'))),
    CHECK ((superseded_by_id IS NOT NULL) = (status = 'superseded')),
    CHECK (status <> 'running' OR (started_at IS NOT NULL AND turn_id IS NOT NULL)),
    CHECK (status <> 'held' OR approval_id IS NOT NULL),
    CHECK ((diagnostic_code IS NULL) = (diagnostic_message IS NULL)),
    CHECK (payload_retained = (text IS NOT NULL)),
    CHECK (payload_retained OR retained_bytes = 0),
    CHECK (payload_retained OR finished_at IS NOT NULL),
    CHECK ((source = 'telegram') = (origin IS NOT NULL))
);
CREATE UNIQUE INDEX queue_items_position_key ON queue_items (home_id, agent_id, position) WHERE status <> 'superseded';
CREATE INDEX queue_items_history_idx ON queue_items (home_id, agent_id, finished_at DESC, id DESC)
    WHERE finished_at IS NOT NULL;
CREATE INDEX queue_items_expiry_idx ON queue_items (finished_at) WHERE payload_retained AND finished_at IS NOT NULL;
CALL wall_off('queue_items');
REVOKE DELETE ON queue_items FROM bazilion_server;
GRANT SELECT (home_id, id, agent_id, status, revision, version, approval_id, payload_retained, retained_bytes, updated_at,
    finished_at) ON queue_items TO bazilion_system;
GRANT UPDATE (status, revision, waiting_for, diagnostic_code, diagnostic_message, updated_at, finished_at, text,
    payload_retained, retained_bytes) ON queue_items TO bazilion_system;

-- The moves an item may make. `restoring` opens the one more that only a restore may use.
CREATE FUNCTION queue_move_allowed(was text, becomes text, restoring boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN becomes = ANY (CASE was
        WHEN 'pending' THEN ARRAY['claimed', 'held', 'failed', 'cancelled', 'superseded']
        WHEN 'claimed' THEN ARRAY['pending', 'running', 'held', 'failed', 'cancelled', 'uncertain']
        WHEN 'running' THEN ARRAY['completed', 'failed', 'cancelled', 'uncertain']
        WHEN 'held' THEN ARRAY['claimed', 'failed', 'cancelled', 'uncertain']
        WHEN 'uncertain' THEN ARRAY['cancelled']
        ELSE ARRAY[]::text[]
    END)
    OR (restoring AND becomes = 'uncertain' AND was IN ('pending', 'claimed', 'running', 'held'));

-- Counts every change, and refuses a move outside the table.
CREATE FUNCTION guard_queue_item() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status <> OLD.status AND NOT queue_move_allowed(
        OLD.status, NEW.status, coalesce(current_setting('bazilion.restoring', true), '') = 'on')
    THEN
        RAISE EXCEPTION 'a queue item cannot go from % to %', OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'queue_items_move_check';
    END IF;
    IF (NEW.request_id, NEW.digest, NEW.agent_id, NEW.team_id, NEW.position, NEW.created_at)
        IS DISTINCT FROM (OLD.request_id, OLD.digest, OLD.agent_id, OLD.team_id, OLD.position, OLD.created_at)
    THEN
        RAISE EXCEPTION 'the receipt of a queue item does not change'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'queue_items_receipt_check';
    END IF;
    NEW.version := OLD.version + 1;
    RETURN NEW;
END
$$;
CREATE TRIGGER queue_items_guard BEFORE UPDATE ON queue_items FOR EACH ROW EXECUTE FUNCTION guard_queue_item();

-- Durable live events. The number comes from the locked Agent row, so numbers grow in commit order.
GRANT SELECT (home_id, id), UPDATE (event_seq) ON agents TO bazilion_system;
GRANT SELECT (event_seq) ON agents TO bazilion_system;
GRANT INSERT ON agent_events TO bazilion_system;

CREATE FUNCTION append_event(in_home uuid, of_agent uuid, event_kind text, event_payload jsonb, event_at timestamptz)
RETURNS bigint
LANGUAGE sql AS $$
    WITH numbered AS (
        UPDATE agents SET event_seq = event_seq + 1 WHERE home_id = in_home AND id = of_agent RETURNING event_seq
    ), appended AS (
        INSERT INTO agent_events (home_id, agent_id, seq, kind, payload, at)
        SELECT in_home, of_agent, event_seq, event_kind, event_payload, event_at FROM numbered
    )
    SELECT event_seq FROM numbered
$$;

-- A change of an item without its event cannot exist.
CREATE FUNCTION announce_queue_item() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_event(NEW.home_id, NEW.agent_id, 'item', jsonb_build_object(
        'id', NEW.id,
        'position', NEW.position,
        'status', NEW.status,
        'revision', NEW.revision,
        'version', NEW.version,
        'waitingFor', NEW.waiting_for,
        'supersedesId', NEW.supersedes_id,
        'approvalId', NEW.approval_id,
        'turnId', NEW.turn_id,
        'payloadRetained', NEW.payload_retained,
        'diagnostic', CASE WHEN NEW.diagnostic_code IS NOT NULL
            THEN jsonb_build_object('code', NEW.diagnostic_code, 'message', NEW.diagnostic_message) END
    ), NEW.updated_at);
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_items_announce AFTER INSERT OR UPDATE ON queue_items
    FOR EACH ROW EXECUTE FUNCTION announce_queue_item();

CREATE FUNCTION announce_queue_control() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_event(NEW.home_id, NEW.agent_id, 'control', jsonb_build_object(
        'paused', NEW.paused,
        'revision', NEW.control_revision,
        'reason', NEW.reason
    ), NEW.changed_at);
    RETURN NULL;
END
$$;
CREATE TRIGGER agent_queues_announce AFTER UPDATE ON agent_queues FOR EACH ROW
    WHEN (NEW.control_revision <> OLD.control_revision) EXECUTE FUNCTION announce_queue_control();

-- Bytes of a home, once each, whoever refers to them. Lists never touch the chunks.
CREATE TABLE blobs (
    home_id uuid NOT NULL REFERENCES homes (id),
    sha256 bytea NOT NULL CHECK (length(sha256) = 32),
    byte_length bigint NOT NULL CHECK (byte_length >= 0),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, sha256)
);
CALL wall_off('blobs');
GRANT SELECT, UPDATE (created_at), DELETE ON blobs TO bazilion_system;

CREATE TABLE blob_chunks (
    home_id uuid NOT NULL,
    sha256 bytea NOT NULL,
    number integer NOT NULL CHECK (number >= 0),
    bytes bytea NOT NULL CHECK (length(bytes) BETWEEN 1 AND 262144),
    PRIMARY KEY (home_id, sha256, number),
    FOREIGN KEY (home_id, sha256) REFERENCES blobs (home_id, sha256) ON DELETE CASCADE
);
ALTER TABLE blob_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;
CALL wall_off('blob_chunks');

CREATE TABLE queue_attachments (
    home_id uuid NOT NULL,
    id uuid NOT NULL,
    item_id uuid NOT NULL,
    ordinal integer NOT NULL CHECK (ordinal BETWEEN 0 AND 15),
    name text CHECK (length(name) BETWEEN 1 AND 255),
    mime_type text NOT NULL CHECK (length(mime_type) <= 200),
    byte_length bigint NOT NULL CHECK (byte_length BETWEEN 0 AND 26214400),
    sha256 bytea NOT NULL CHECK (length(sha256) = 32),
    -- The same hash while the bytes are kept; null once they expired.
    blob bytea CHECK (blob = sha256),
    PRIMARY KEY (home_id, id),
    CONSTRAINT queue_attachments_ordinal_key UNIQUE (home_id, item_id, ordinal),
    FOREIGN KEY (home_id, item_id) REFERENCES queue_items (home_id, id),
    FOREIGN KEY (home_id, blob) REFERENCES blobs (home_id, sha256)
);
CREATE INDEX queue_attachments_blob_idx ON queue_attachments (home_id, blob) WHERE blob IS NOT NULL;
CALL wall_off('queue_attachments');
REVOKE DELETE ON queue_attachments FROM bazilion_server;
GRANT SELECT (home_id, id, item_id, blob), UPDATE (blob) ON queue_attachments TO bazilion_system;

-- A recorded question to an operator: may this exact attempt go ahead? Names agent, item and digest; never text or bytes.
CREATE TABLE approvals (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    agent_id uuid NOT NULL,
    item_id uuid NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    state text NOT NULL CHECK (state IN
        ('pending', 'approved', 'delivering', 'delivered', 'delivery_failed', 'denied', 'expired', 'cancelled')),
    reason text NOT NULL CHECK (length(reason) <= 200),
    policy jsonb NOT NULL,
    fence bigint,
    requested_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    decided_by uuid REFERENCES operators (id),
    decided_at timestamptz,
    delivered_at timestamptz,
    PRIMARY KEY (home_id, id),
    CONSTRAINT approvals_item_key UNIQUE (home_id, item_id, id),
    FOREIGN KEY (home_id, agent_id) REFERENCES agents (home_id, id),
    FOREIGN KEY (home_id, item_id) REFERENCES queue_items (home_id, id),
    CHECK ((fence IS NOT NULL) = (state IN ('delivering', 'delivered', 'delivery_failed'))),
    CHECK (state NOT IN ('approved', 'delivering', 'delivered', 'delivery_failed') OR decided_by IS NOT NULL),
    CHECK ((delivered_at IS NOT NULL) = (state = 'delivered'))
);
-- One open question about an item at a time.
CREATE UNIQUE INDEX approvals_open_key ON approvals (home_id, item_id)
    WHERE state IN ('pending', 'approved', 'delivering');
CREATE INDEX approvals_expiry_idx ON approvals (expires_at) WHERE state = 'pending';
CREATE INDEX approvals_list_idx ON approvals (home_id, requested_at DESC, id DESC);
ALTER TABLE queue_items ADD FOREIGN KEY (home_id, id, approval_id) REFERENCES approvals (home_id, item_id, id)
    DEFERRABLE INITIALLY DEFERRED;
CALL wall_off('approvals');
REVOKE DELETE ON approvals FROM bazilion_server;
GRANT SELECT (home_id, id, agent_id, item_id, state, fence, expires_at), UPDATE (state, fence) ON approvals
    TO bazilion_system;

-- Takes up to `wanted` heads for one process, one per home and round, beginning behind `after_home`: a home's flood does
-- not delay another home. A process without a row in `incarnations` was judged dead and gets nothing.
CREATE FUNCTION claim_heads(claimer uuid, wanted integer, at timestamptz, after_home uuid)
RETURNS TABLE (home_id uuid, agent_id uuid, item_id uuid, fence bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    nowhere CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    behind uuid := coalesce(after_home, nowhere);
    taken integer := 0;
    lane record;
    number bigint;
BEGIN
    PERFORM FROM incarnations WHERE id = claimer FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WHILE taken < wanted LOOP
        SELECT q.home_id, q.agent_id, q.open[1] AS head, q.phase INTO lane
        FROM agent_queues q
        WHERE q.ready_at <= at AND q.home_id > behind
        ORDER BY q.home_id, q.ready_at
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            EXIT WHEN behind = nowhere;
            behind := nowhere;
            CONTINUE;
        END IF;
        number := nextval('queue_fences');
        UPDATE queue_items i SET status = 'claimed', waiting_for = NULL, updated_at = at
        WHERE i.home_id = lane.home_id AND i.id = lane.head;
        IF lane.phase = 'approved' THEN
            UPDATE approvals a SET state = 'delivering', fence = number
            WHERE a.home_id = lane.home_id AND a.item_id = lane.head AND a.state = 'approved';
        END IF;
        UPDATE agent_queues q SET phase = 'claimed', owner = claimer, fence = number, ready_at = NULL
        WHERE q.home_id = lane.home_id AND q.agent_id = lane.agent_id;
        RETURN QUERY SELECT lane.home_id, lane.agent_id, lane.head, number;
        behind := lane.home_id;
        taken := taken + 1;
    END LOOP;
END
$$;
