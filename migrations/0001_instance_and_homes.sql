-- Roles. Both are entered with SET LOCAL ROLE by a login that owns nothing; neither bypasses row-level security.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bazilion_server') THEN
        CREATE ROLE bazilion_server NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bazilion_system') THEN
        CREATE ROLE bazilion_system NOLOGIN;
    END IF;
EXCEPTION
    -- Two databases of one cluster, migrated at the same moment.
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

GRANT USAGE ON SCHEMA public TO bazilion_server, bazilion_system;
GRANT SELECT ON _sqlx_migrations TO PUBLIC;

-- The home of this transaction. The setting is an empty string after an earlier transaction of the connection.
CREATE FUNCTION current_home() RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN NULLIF(current_setting('bazilion.home_id', true), '')::uuid;

-- Walls off a tenant table: forced row-level security, the server inside its home only.
-- `bazilion_system` gets an explicit policy; its column rights are granted table by table.
CREATE PROCEDURE wall_off(tenant_table regclass)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', tenant_table);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', tenant_table);
    EXECUTE format(
        'CREATE POLICY home ON %s TO bazilion_server USING (home_id = current_home()) WITH CHECK (home_id = current_home())',
        tenant_table);
    EXECUTE format('CREATE POLICY across_homes ON %s TO bazilion_system USING (true) WITH CHECK (true)', tenant_table);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO bazilion_server', tenant_table);
END
$$;

-- One row: what this database is, to recognise a copy or a rewind (queue.md, "Restored databases").
CREATE TABLE instance (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    instance_id uuid NOT NULL,
    generation bigint NOT NULL DEFAULT 1 CHECK (generation > 0),
    written_xid xid8 NOT NULL,
    database_oid oid NOT NULL,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    data_directory text,
    data_device bigint,
    data_inode bigint,
    last_fence bigint NOT NULL DEFAULT 0 CHECK (last_fence >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT, INSERT, UPDATE ON instance TO bazilion_system;
GRANT SELECT (instance_id, generation) ON instance TO bazilion_server;

-- One row per life of a server process. It exists as long as nobody has judged that life ended: a claim takes it
-- FOR KEY SHARE, so a process that was judged dead cannot claim.
CREATE TABLE incarnations (
    id uuid PRIMARY KEY,
    node_id uuid NOT NULL,
    machine_id text NOT NULL,
    boot_id text NOT NULL,
    pid integer NOT NULL,
    worker boolean NOT NULL,
    generation bigint NOT NULL,
    lock_path text,
    started_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL
);
GRANT SELECT, INSERT, UPDATE, DELETE ON incarnations TO bazilion_system;
GRANT SELECT ON incarnations TO bazilion_server;

CREATE TABLE homes (
    id uuid PRIMARY KEY,
    slug text NOT NULL CONSTRAINT homes_slug_key UNIQUE CHECK (slug ~ '^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$'),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    posture text NOT NULL DEFAULT 'docker' CHECK (posture IN ('docker', 'host')),
    host_posture_allowed boolean NOT NULL DEFAULT false,
    shell_approval text NOT NULL DEFAULT 'off' CHECK (shell_approval IN ('off', 'dangerous')),
    allowed_images text[] NOT NULL DEFAULT '{}',
    model_silence_seconds integer NOT NULL DEFAULT 120 CHECK (model_silence_seconds > 0),
    turn_seconds integer NOT NULL DEFAULT 3600 CHECK (turn_seconds > 0),
    agent_hops integer NOT NULL DEFAULT 8 CHECK (agent_hops > 0),
    restore_epoch bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    CHECK (posture <> 'host' OR host_posture_allowed)
);
ALTER TABLE homes ENABLE ROW LEVEL SECURITY;
ALTER TABLE homes FORCE ROW LEVEL SECURITY;
CREATE POLICY home ON homes TO bazilion_server USING (id = current_home()) WITH CHECK (id = current_home());
CREATE POLICY across_homes ON homes TO bazilion_system USING (true) WITH CHECK (true);
GRANT SELECT ON homes TO bazilion_server;
GRANT UPDATE (name, posture, shell_approval) ON homes TO bazilion_server;
GRANT SELECT, INSERT, UPDATE ON homes TO bazilion_system;

-- Exact counters. Updated last in every transaction; a violated CHECK is the 429.
CREATE TABLE home_usage (
    home_id uuid PRIMARY KEY REFERENCES homes (id),
    open_items integer NOT NULL DEFAULT 0,
    max_open_items integer NOT NULL DEFAULT 100,
    retained_bytes bigint NOT NULL DEFAULT 0,
    max_retained_bytes bigint NOT NULL DEFAULT 268435456,
    receipts integer NOT NULL DEFAULT 0,
    max_receipts integer NOT NULL DEFAULT 100000,
    CONSTRAINT home_usage_open_items_check CHECK (open_items BETWEEN 0 AND max_open_items),
    CONSTRAINT home_usage_retained_bytes_check CHECK (retained_bytes BETWEEN 0 AND max_retained_bytes),
    CONSTRAINT home_usage_receipts_check CHECK (receipts BETWEEN 0 AND max_receipts)
) WITH (fillfactor = 50);
CALL wall_off('home_usage');
GRANT SELECT, INSERT, UPDATE ON home_usage TO bazilion_system;

-- The data key of a home, wrapped by the instance key; secrets are sealed with the data key.
CREATE TABLE home_keys (
    home_id uuid PRIMARY KEY REFERENCES homes (id),
    wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL
);
CALL wall_off('home_keys');
GRANT INSERT ON home_keys TO bazilion_system;

CREATE TABLE providers (
    home_id uuid NOT NULL REFERENCES homes (id),
    name text NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
    kind text NOT NULL CHECK (kind IN ('openai-completions', 'anthropic-messages')),
    base_url text NOT NULL CHECK (length(base_url) <= 2048),
    models jsonb NOT NULL,
    sealed_key bytea,
    scripted boolean NOT NULL DEFAULT false,
    revision bigint NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, name)
);
CALL wall_off('providers');
