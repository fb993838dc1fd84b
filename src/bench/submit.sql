-- What the server sends for one plain acceptance, for pgbench. {home} and {operator} are filled in; n counts from -1.
-- A client goes on to its next Agent when the queue of one is full. An input that is not stored gives no row, which ends it.
\set n :n + 1
\set item random(1, 281474976710655)
\set number 1000 + :client_id * 10 + :n / 20
SELECT place, team_id, position, created_at, paused, phase
FROM submit_inputs(
    '{home}', 0, '\x62617a696c696f6e',
    ARRAY[('00000000-0000-7000-8000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid],
    ARRAY[('00000000-0000-7000-b000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid],
    ARRAY[('00000000-0000-7000-a000-' || lpad(to_hex(:item::bigint), 12, '0'))::uuid],
    ARRAY[('00000000-0000-7000-9000-' || lpad(to_hex(:number::bigint), 12, '0'))::uuid],
    ARRAY[1::bigint], ARRAY['Run the tests and fix what fails.'], ARRAY['\x0102'::bytea], ARRAY['{operator}'::uuid],
    ARRAY[NULL::text]) \gset
