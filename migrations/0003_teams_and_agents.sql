CREATE TABLE profiles (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    slug text NOT NULL CHECK (slug ~ '^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$'),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    default_model text NOT NULL CHECK (default_model LIKE '%_:_%'),
    reasoning text NOT NULL DEFAULT 'off' CHECK (reasoning IN ('off', 'minimal', 'low', 'medium', 'high', 'xhigh')),
    skills_mode text NOT NULL DEFAULT 'all' CHECK (skills_mode IN ('all', 'selected')),
    soul text NOT NULL DEFAULT '',
    identity text NOT NULL DEFAULT '',
    agents text,
    tools text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, id),
    CONSTRAINT profiles_slug_key UNIQUE (home_id, slug)
);
CALL wall_off('profiles');

CREATE TABLE teams (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    slug text NOT NULL CHECK (slug ~ '^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$'),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    user_md text NOT NULL DEFAULT '' CHECK (octet_length(user_md) <= 12000),
    executor text NOT NULL DEFAULT 'local',
    root_kind text NOT NULL CHECK (root_kind IN ('managed', 'linked')),
    -- Only of a linked root; a managed one is derived from the executor's base.
    root_path text,
    policy_revision bigint NOT NULL DEFAULT 1 CHECK (policy_revision > 0),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, id),
    CONSTRAINT teams_slug_key UNIQUE (home_id, slug),
    CHECK ((root_kind = 'linked') = (root_path IS NOT NULL))
);
CALL wall_off('teams');

CREATE TABLE conversations (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    agent_id uuid NOT NULL,
    number integer NOT NULL CHECK (number > 0),
    title text CHECK (length(title) BETWEEN 1 AND 200),
    revision bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, id),
    -- What a selection or an item points at: a conversation of that very Agent.
    CONSTRAINT conversations_agent_key UNIQUE (home_id, agent_id, id),
    CONSTRAINT conversations_number_key UNIQUE (home_id, agent_id, number)
);
CALL wall_off('conversations');

CREATE TABLE agents (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    team_id uuid NOT NULL,
    profile_id uuid NOT NULL,
    model text CHECK (model LIKE '%_:_%'),
    reasoning text CHECK (reasoning IN ('off', 'minimal', 'low', 'medium', 'high', 'xhigh')),
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'archived')),
    conversation_id uuid,
    selection_revision bigint NOT NULL DEFAULT 0,
    -- Durable events take their number from this row, locked, so numbers grow in commit order.
    event_seq bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, id),
    FOREIGN KEY (home_id, team_id) REFERENCES teams (home_id, id),
    FOREIGN KEY (home_id, profile_id) REFERENCES profiles (home_id, id),
    FOREIGN KEY (home_id, id, conversation_id) REFERENCES conversations (home_id, agent_id, id)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX agents_name_key ON agents (home_id, lower(name));
CREATE INDEX agents_team_idx ON agents (home_id, team_id);
CALL wall_off('agents');

ALTER TABLE conversations
    ADD FOREIGN KEY (home_id, agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;

-- A missing edge denies. `agent_id` is null where the end is the user or whoever is outside the Team.
CREATE TABLE policy_edges (
    home_id uuid NOT NULL,
    team_id uuid NOT NULL,
    source text NOT NULL CHECK (source IN ('user', 'outside_team', 'agent')),
    source_agent_id uuid,
    target text NOT NULL CHECK (target IN ('user', 'outside_team', 'agent')),
    target_agent_id uuid,
    effect text NOT NULL CHECK (effect IN ('allow', 'approval_required')),
    CONSTRAINT policy_edges_key
        UNIQUE NULLS NOT DISTINCT (home_id, team_id, source, source_agent_id, target, target_agent_id),
    FOREIGN KEY (home_id, team_id) REFERENCES teams (home_id, id) ON DELETE CASCADE,
    FOREIGN KEY (home_id, source_agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE,
    FOREIGN KEY (home_id, target_agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE,
    CHECK ((source = 'agent') = (source_agent_id IS NOT NULL)),
    CHECK ((target = 'agent') = (target_agent_id IS NOT NULL)),
    CHECK (source = 'agent' OR target = 'agent')
);
CALL wall_off('policy_edges');

CREATE TABLE conversation_requests (
    home_id uuid NOT NULL,
    request_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    conversation_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, request_id),
    FOREIGN KEY (home_id, agent_id, conversation_id) REFERENCES conversations (home_id, agent_id, id) ON DELETE CASCADE
);
CALL wall_off('conversation_requests');

-- The session file's lines, raw, in order.
CREATE TABLE transcript_lines (
    home_id uuid NOT NULL,
    conversation_id uuid NOT NULL,
    seq integer NOT NULL CHECK (seq > 0),
    turn_id uuid,
    item_id uuid,
    entry_id text,
    parent_id text,
    raw bytea NOT NULL,
    sha256 bytea NOT NULL CHECK (length(sha256) = 32),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, conversation_id, seq),
    FOREIGN KEY (home_id, conversation_id) REFERENCES conversations (home_id, id) ON DELETE CASCADE
);
CALL wall_off('transcript_lines');

-- Durable live events, kept for an hour.
CREATE TABLE agent_events (
    home_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    seq bigint NOT NULL CHECK (seq > 0),
    kind text NOT NULL CHECK (kind IN ('item', 'control', 'turn', 'message')),
    payload jsonb NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (home_id, agent_id, seq),
    FOREIGN KEY (home_id, agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE
);
CREATE INDEX agent_events_at_idx ON agent_events (at);
CALL wall_off('agent_events');
GRANT SELECT (home_id, agent_id, seq, at), DELETE ON agent_events TO bazilion_system;
