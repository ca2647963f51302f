-- Ingest and intervals once more, for one day that begins a history: each row once, when each life of a name server watched,
-- what each observer said of each broker, and the merged up and down of every broker. $files, $day_start and $day_end
-- (microseconds) are given. Nothing here comes from the Spark job but the rules.

CREATE TEMP TABLE raw AS
SELECT node, boot_id, seq, event, reason, cluster, broker_name, broker_id, epoch_us(event_at::TIMESTAMPTZ) AS at_us
FROM read_json(
    $files,
    format = 'newline_delimited',
    ignore_errors = true,
    columns = {
        node: 'VARCHAR', boot_id: 'VARCHAR', seq: 'BIGINT', event: 'VARCHAR', reason: 'VARCHAR', cluster: 'VARCHAR',
        broker_name: 'VARCHAR', broker_id: 'BIGINT', event_at: 'VARCHAR'
    }
)
WHERE node IS NOT NULL AND event_at IS NOT NULL;

CREATE TEMP TABLE events AS
SELECT DISTINCT ON (node, boot_id, seq) * FROM raw WHERE at_us >= $day_start AND at_us < $day_end;

CREATE TEMP TABLE windows AS
SELECT
    node,
    boot_id,
    coalesce(min(at_us) FILTER (event = 'NAMESRV_READY'), min(at_us) FILTER (event <> 'NAMESRV_STARTED')) AS watch_from,
    coalesce(
        min(at_us) FILTER (event = 'NAMESRV_STOPPED'),
        CASE WHEN $day_end - max(at_us) <= 150000000 THEN $day_end ELSE max(at_us) END
    ) AS watch_to
FROM events
GROUP BY node, boot_id;

CREATE TEMP TABLE said AS
WITH told AS (
    SELECT
        *,
        CASE
            WHEN event IN ('EXPIRED', 'PROBE_FAILED', 'UNREGISTERED') THEN event
            WHEN event IN ('REGISTERED', 'REREGISTERED', 'ROLE_CHANGED', 'ADDRESS_CHANGED', 'RESTARTED')
                OR (event = 'RECOVERED' AND reason IS DISTINCT FROM 'HEARTBEAT') THEN event
        END AS decisive
    FROM events
    WHERE broker_id IS NOT NULL AND event IN (
        'REGISTERED', 'REREGISTERED', 'ROLE_CHANGED', 'ADDRESS_CHANGED', 'RESTARTED', 'RECOVERED', 'EXPIRED', 'PROBE_FAILED',
        'UNREGISTERED', 'SUSPECTED', 'LATE_HEARTBEAT', 'HEARTBEATS', 'CHECKPOINT'
    )
),
remembered AS (
    SELECT
        *,
        last_value(decisive IGNORE NULLS) OVER (
            PARTITION BY cluster, broker_name, broker_id, node, boot_id ORDER BY at_us, seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS last_decisive
    FROM told
)
SELECT
    r.* EXCLUDE (decisive, last_decisive),
    watch_from,
    watch_to,
    CASE
        WHEN decisive IN ('EXPIRED', 'PROBE_FAILED', 'UNREGISTERED') THEN 'down'
        WHEN decisive IS NOT NULL THEN 'up'
        WHEN event = 'RECOVERED' AND last_decisive IS DISTINCT FROM 'PROBE_FAILED' THEN 'up'
        WHEN last_decisive IS NULL THEN 'up'
    END AS opinion
FROM remembered r JOIN windows USING (node, boot_id)
WHERE at_us <= watch_to AND opinion IS NOT NULL;

CREATE TEMP TABLE steps AS
WITH in_force AS (
    SELECT * REPLACE (greatest(at_us, watch_from) AS at_us)
    FROM said
    QUALIFY coalesce(lead(at_us) OVER (PARTITION BY cluster, broker_name, broker_id, node, boot_id ORDER BY at_us, seq), watch_from)
        >= watch_from
),
changes AS (
    SELECT
        *,
        (opinion = 'up')::INT - coalesce((was = 'up')::INT, 0) AS gain_up,
        (opinion = 'down')::INT - coalesce((was = 'down')::INT, 0) AS gain_down
    FROM (
        SELECT *, lag(opinion) OVER (PARTITION BY cluster, broker_name, broker_id, node, boot_id ORDER BY at_us, seq) AS was
        FROM in_force
    )
),
leaves AS (
    SELECT cluster, broker_name, broker_id, watch_to AS at_us, max_by(opinion, (at_us, seq)) AS held, node, boot_id
    FROM in_force
    WHERE watch_to < $day_end
    GROUP BY cluster, broker_name, broker_id, node, boot_id, watch_to
)
SELECT cluster, broker_name, broker_id, at_us, node, boot_id, seq, gain_up, gain_down FROM changes
UNION ALL
SELECT
    cluster, broker_name, broker_id, at_us, '~', '', 9223372036854775807,
    -count(*) FILTER (held = 'up'), -count(*) FILTER (held = 'down')
FROM leaves
GROUP BY cluster, broker_name, broker_id, at_us;

CREATE TEMP TABLE intervals AS
WITH counted AS (
    SELECT
        *,
        sum(gain_up) OVER story AS up,
        sum(gain_down) OVER story AS down
    FROM steps
    WINDOW story AS (PARTITION BY cluster, broker_name, broker_id ORDER BY at_us, node, boot_id, seq)
),
seen AS (
    SELECT *, CASE WHEN up > 0 THEN 'up' WHEN down > 0 THEN 'down' END AS state FROM counted
),
begun AS (
    SELECT *
    FROM seen
    QUALIFY state IS DISTINCT FROM lag(state) OVER (
        PARTITION BY cluster, broker_name, broker_id ORDER BY at_us, node, boot_id, seq
    )
)
SELECT cluster, broker_name, broker_id, state, at_us AS start_at, end_at
FROM (
    SELECT
        *,
        coalesce(
            lead(at_us) OVER (PARTITION BY cluster, broker_name, broker_id ORDER BY at_us, node, boot_id, seq), $day_end
        ) AS end_at
    FROM begun
)
WHERE state IS NOT NULL;
