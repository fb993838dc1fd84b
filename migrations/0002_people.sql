-- People belong to the instance; what they may do belongs to a home.
CREATE TABLE operators (
    id uuid PRIMARY KEY,
    email text NOT NULL CHECK (email = lower(email) AND length(email) <= 254),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    password_hash text,
    instance_admin boolean NOT NULL DEFAULT false,
    built_in boolean NOT NULL DEFAULT false,
    disabled_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT operators_email_key UNIQUE (email)
);
GRANT SELECT, INSERT, UPDATE ON operators TO bazilion_system;
GRANT SELECT (id, email, name, built_in) ON operators TO bazilion_server;

CREATE TABLE memberships (
    home_id uuid NOT NULL REFERENCES homes (id),
    operator_id uuid NOT NULL REFERENCES operators (id),
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'owner')),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, operator_id)
);
CREATE INDEX memberships_operator_idx ON memberships (operator_id);
CALL wall_off('memberships');
GRANT SELECT, INSERT ON memberships TO bazilion_system;

CREATE TABLE api_tokens (
    home_id uuid NOT NULL,
    id uuid NOT NULL,
    operator_id uuid NOT NULL,
    token_hash bytea NOT NULL CHECK (length(token_hash) = 32),
    label text NOT NULL CHECK (length(label) BETWEEN 1 AND 100),
    scopes text[] NOT NULL CHECK (scopes <@ ARRAY['read', 'write', 'approvals', 'admin']),
    -- A token minted on the machine for less than the built-in operator's role.
    role_limit text CHECK (role_limit IN ('viewer', 'operator', 'owner')),
    instance_admin boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (home_id, id),
    FOREIGN KEY (home_id, operator_id) REFERENCES memberships (home_id, operator_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX api_tokens_hash_key ON api_tokens (token_hash);
CALL wall_off('api_tokens');
GRANT SELECT, INSERT ON api_tokens TO bazilion_system;
GRANT UPDATE (last_used_at) ON api_tokens TO bazilion_system;

-- Browser sessions, by the hash of their id: a leaked table holds no cookie.
CREATE TABLE sessions (
    id_hash bytea PRIMARY KEY CHECK (length(id_hash) = 32),
    operator_id uuid REFERENCES operators (id),
    data jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    user_agent text
);
CREATE INDEX sessions_operator_idx ON sessions (operator_id);
CREATE INDEX sessions_expiry_idx ON sessions (expires_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON sessions TO bazilion_system;

CREATE TABLE sign_in_links (
    token_hash bytea PRIMARY KEY CHECK (length(token_hash) = 32),
    operator_id uuid NOT NULL REFERENCES operators (id),
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);
GRANT SELECT, INSERT, UPDATE, DELETE ON sign_in_links TO bazilion_system;

-- Failed sign-ins, per account and per address, by keyed hash of either.
CREATE TABLE sign_in_failures (
    subject_hash bytea NOT NULL CHECK (length(subject_hash) = 32),
    at timestamptz NOT NULL
);
CREATE INDEX sign_in_failures_idx ON sign_in_failures (subject_hash, at);
GRANT SELECT, INSERT, DELETE ON sign_in_failures TO bazilion_system;

-- Append-only for the server: no UPDATE, no DELETE is granted to anybody.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    home_id uuid REFERENCES homes (id),
    at timestamptz NOT NULL,
    actor text NOT NULL CHECK (actor IN ('operator', 'agent', 'system')),
    actor_id uuid,
    origin text NOT NULL,
    action text NOT NULL,
    target text,
    outcome text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_home_idx ON audit (home_id, id DESC);
ALTER TABLE audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit FORCE ROW LEVEL SECURITY;
CREATE POLICY home ON audit TO bazilion_server USING (home_id = current_home()) WITH CHECK (home_id = current_home());
CREATE POLICY across_homes ON audit TO bazilion_system USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON audit TO bazilion_server, bazilion_system;
