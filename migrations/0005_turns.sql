-- One row per run of an Agent. `lease_id` outlives the lease: a sweep may touch a container only when its lease ended
-- in this generation.
CREATE TABLE turns (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    agent_id uuid NOT NULL,
    team_id uuid NOT NULL,
    conversation_id uuid NOT NULL,
    cause text NOT NULL CHECK (cause IN ('item', 'inbox')),
    item_id uuid,
    posture text NOT NULL CHECK (posture IN ('host', 'docker', 'protected')),
    lease_id uuid NOT NULL,
    fence bigint NOT NULL CHECK (fence >= 0),
    incarnation_id uuid NOT NULL,
    generation bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'cancelled', 'uncertain')),
    model text NOT NULL,
    -- The highest hop among the messages that woke the Agent; 0 for a person's input.
    hop integer NOT NULL DEFAULT 0 CHECK (hop >= 0),
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    -- Ids of the tool calls that became commands: what counts to 64, and what a repeated id is recognised by.
    command_calls text[] NOT NULL DEFAULT '{}' CHECK (cardinality(command_calls) <= 64),
    cancel_requested_at timestamptz,
    code text,
    message text CHECK (length(message) <= 500),
    span text,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    PRIMARY KEY (home_id, id),
    FOREIGN KEY (home_id, agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE,
    FOREIGN KEY (home_id, agent_id, conversation_id)
        REFERENCES conversations (home_id, agent_id, id) ON DELETE CASCADE,
    CHECK ((state = 'running') = (ended_at IS NULL)),
    CHECK ((cause = 'item') = (item_id IS NOT NULL))
);
-- At most one turn of an Agent at a time.
CREATE UNIQUE INDEX turns_running_key ON turns (home_id, agent_id) WHERE state = 'running';
CREATE UNIQUE INDEX turns_lease_key ON turns (home_id, lease_id);
CREATE INDEX turns_incarnation_idx ON turns (incarnation_id) WHERE state = 'running';
CREATE INDEX turns_item_idx ON turns (home_id, item_id);
CALL wall_off('turns');
GRANT SELECT (home_id, id, agent_id, lease_id, incarnation_id, generation, state, cancel_requested_at) ON turns
    TO bazilion_system;

-- A turn that begins or ends without its event cannot exist.
CREATE FUNCTION announce_turn() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_event(NEW.home_id, NEW.agent_id, 'turn', jsonb_build_object(
        'id', NEW.id,
        'itemId', NEW.item_id,
        'state', NEW.state,
        'startedAt', to_char(NEW.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    ), coalesce(NEW.ended_at, NEW.started_at));
    RETURN NULL;
END
$$;
CREATE TRIGGER turns_announce_start AFTER INSERT ON turns FOR EACH ROW EXECUTE FUNCTION announce_turn();
CREATE TRIGGER turns_announce_end AFTER UPDATE OF state ON turns FOR EACH ROW EXECUTE FUNCTION announce_turn();

-- Who owns which directory tree, on which executor. No reference to a Team: deleting one never deletes a lease.
-- The row disappears only when every recorded resource is proven gone.
CREATE TABLE workspace_leases (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    executor text NOT NULL,
    team_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    incarnation_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    generation bigint NOT NULL,
    root text NOT NULL CHECK (root LIKE '/%'),
    device bigint NOT NULL,
    inode bigint NOT NULL,
    -- Of the parent, its parent, … up to `/`, pairwise.
    ancestor_devices bigint[] NOT NULL,
    ancestor_inodes bigint[] NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'recovery')),
    reason text CHECK (length(reason) <= 500),
    -- A record that came with a restored database permits ending nothing.
    restored boolean NOT NULL DEFAULT false,
    acquired_at timestamptz NOT NULL,
    recovery_at timestamptz,
    PRIMARY KEY (home_id, id),
    CHECK (cardinality(ancestor_devices) = cardinality(ancestor_inodes)),
    CHECK ((state = 'recovery') = (reason IS NOT NULL)),
    CHECK ((state = 'recovery') = (recovery_at IS NOT NULL)),
    CHECK (NOT restored OR state = 'recovery')
);
CREATE INDEX workspace_leases_executor_idx ON workspace_leases (executor);
CREATE INDEX workspace_leases_incarnation_idx ON workspace_leases (incarnation_id);
CREATE INDEX workspace_leases_team_idx ON workspace_leases (home_id, team_id);
CALL wall_off('workspace_leases');
-- Overlap is a question across homes. A lease is also taken there, behind the executor's advisory lock.
GRANT SELECT, INSERT ON workspace_leases TO bazilion_system;
GRANT UPDATE (state, reason, recovery_at, restored) ON workspace_leases TO bazilion_system;

-- What could still be writing: recorded before it is made, gone only by proof.
CREATE TABLE lease_resources (
    home_id uuid NOT NULL,
    id uuid NOT NULL,
    lease_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('command', 'toolbox', 'process')),
    name text NOT NULL,
    engine_id text,
    container_id text CHECK (container_id ~ '^[0-9a-f]{64}$'),
    -- The command it was made for: minted with the container, also when that waits for its command.
    receipt_id uuid,
    state text NOT NULL CHECK (state IN ('recorded', 'created', 'started', 'removed')),
    -- Of a host process: which machine and boot it belongs to, and its cgroup.
    node_id uuid,
    machine_id text,
    boot_id text,
    pid integer,
    cgroup text,
    recorded_at timestamptz NOT NULL,
    removed_at timestamptz,
    PRIMARY KEY (home_id, id),
    CONSTRAINT lease_resources_name_key UNIQUE (home_id, name),
    -- No cascade, on purpose: a lease with a resource that was not proven gone cannot be deleted.
    FOREIGN KEY (home_id, lease_id) REFERENCES workspace_leases (home_id, id),
    CHECK (kind = 'process' OR engine_id IS NOT NULL),
    CHECK (kind = 'process' OR state IN ('recorded', 'removed') OR container_id IS NOT NULL),
    CHECK ((state = 'removed') = (removed_at IS NOT NULL))
);
CREATE INDEX lease_resources_lease_idx ON lease_resources (home_id, lease_id);
CALL wall_off('lease_resources');

-- Evidence of one command. Neither the Agent nor its turn is referenced: receipts stay with the Team.
CREATE TABLE coding_receipts (
    home_id uuid NOT NULL,
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    tool_call_id text NOT NULL CHECK (length(tool_call_id) BETWEEN 1 AND 256),
    input jsonb NOT NULL,
    environment jsonb NOT NULL,
    -- What applicability compares, and the process whose life it depends on; null when it could not be taken.
    evidence jsonb,
    incarnation_id uuid NOT NULL,
    resource_id uuid,
    state text NOT NULL CHECK (state IN
        ('running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'blocked', 'interrupted')),
    exit_code integer,
    signal integer,
    reason text CHECK (length(reason) <= 500),
    hints jsonb NOT NULL DEFAULT '[]',
    tail text NOT NULL DEFAULT '',
    bytes_total bigint NOT NULL DEFAULT 0 CHECK (bytes_total >= 0),
    truncated boolean NOT NULL DEFAULT false,
    cleanup text NOT NULL DEFAULT 'pending' CHECK (cleanup IN ('confirmed', 'pending', 'uncertain')),
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (home_id, id),
    CONSTRAINT coding_receipts_call_key UNIQUE (home_id, turn_id, tool_call_id),
    FOREIGN KEY (home_id, team_id) REFERENCES teams (home_id, id) ON DELETE CASCADE,
    CHECK (octet_length(tail) <= 65536),
    CHECK ((state = 'running') = (finished_at IS NULL)),
    CHECK (state <> 'succeeded' OR (exit_code = 0 AND cleanup = 'confirmed')),
    CHECK (state NOT IN ('failed', 'timed_out', 'cancelled') OR cleanup = 'confirmed')
);
-- One command of a turn at a time.
CREATE UNIQUE INDEX coding_receipts_running_key ON coding_receipts (home_id, turn_id) WHERE state = 'running';
CREATE INDEX coding_receipts_team_idx ON coding_receipts (home_id, team_id, finished_at DESC);
CREATE INDEX coding_receipts_expiry_idx ON coding_receipts (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX coding_receipts_incarnation_idx ON coding_receipts (incarnation_id) WHERE state = 'running';
CALL wall_off('coding_receipts');
GRANT SELECT (home_id, id, incarnation_id, state, finished_at), DELETE ON coding_receipts TO bazilion_system;

CREATE TABLE coding_environments (
    home_id uuid NOT NULL,
    team_id uuid NOT NULL,
    revision bigint NOT NULL CHECK (revision > 0),
    config jsonb NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, team_id),
    FOREIGN KEY (home_id, team_id) REFERENCES teams (home_id, id) ON DELETE CASCADE
);
CALL wall_off('coding_environments');
