-- A message stays when a party is archived; it goes with its recipient.
CREATE TABLE messages (
    home_id uuid NOT NULL REFERENCES homes (id),
    id uuid NOT NULL,
    from_agent_id uuid NOT NULL,
    to_agent_id uuid NOT NULL,
    -- Where both belonged when it was sent.
    from_team_id uuid NOT NULL,
    to_team_id uuid NOT NULL,
    -- Identity of the sending tool call, and what it asked for.
    turn_id uuid NOT NULL,
    tool_call_id text NOT NULL CHECK (length(tool_call_id) BETWEEN 1 AND 256),
    digest bytea NOT NULL CHECK (length(digest) = 32),
    text text NOT NULL CHECK (octet_length(text) BETWEEN 1 AND 65536),
    reply_to uuid,
    hop integer NOT NULL CHECK (hop > 0),
    state text NOT NULL CHECK (state IN ('unread', 'held', 'read', 'uncertain', 'refused')),
    delivered_turn_id uuid,
    created_at timestamptz NOT NULL,
    read_at timestamptz,
    acknowledged_at timestamptz,
    PRIMARY KEY (home_id, id),
    CONSTRAINT messages_call_key UNIQUE (home_id, turn_id, tool_call_id),
    FOREIGN KEY (home_id, from_agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE,
    FOREIGN KEY (home_id, to_agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE,
    FOREIGN KEY (home_id, reply_to) REFERENCES messages (home_id, id) ON DELETE SET NULL (reply_to)
);
CREATE INDEX messages_inbox_idx ON messages (home_id, to_agent_id, id) WHERE state IN ('unread', 'uncertain');
CREATE INDEX messages_reply_idx ON messages (home_id, reply_to);
CALL wall_off('messages');
GRANT SELECT (home_id, id, to_agent_id, state, created_at) ON messages TO bazilion_system;

-- A chain of messages that was cut: who, when, how deep. No text.
CREATE TABLE loop_breaks (
    home_id uuid NOT NULL,
    id uuid NOT NULL,
    from_agent_id uuid NOT NULL,
    to_agent_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    hop integer NOT NULL CHECK (hop > 0),
    at timestamptz NOT NULL,
    PRIMARY KEY (home_id, id),
    FOREIGN KEY (home_id, from_agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE,
    FOREIGN KEY (home_id, to_agent_id) REFERENCES agents (home_id, id) ON DELETE CASCADE
);
CREATE INDEX loop_breaks_idx ON loop_breaks (home_id, from_agent_id, at DESC);
CALL wall_off('loop_breaks');
