-- Ingest and intervals once more, for one day that begins a history: each row once, when each life of a name server watched,
-- what each observer recorded of each broker, and the merged up and down of every broker. $files, $day_start and $day_end
-- (microseconds) are given; no row is missing. Nothing here comes from the Spark job but the rules.

CREATE TEMP TABLE raw AS
SELECT
    node, boot_id, seq, event, reason, cluster, broker_name, broker_id, state, planned,
    epoch_us(event_at::TIMESTAMPTZ) AS at_us
FROM read_json(
    $files,
    format = 'newline_delimited',
    ignore_errors = true,
    columns = {
        node: 'VARCHAR', boot_id: 'VARCHAR', seq: 'BIGINT', event: 'VARCHAR', reason: 'VARCHAR', cluster: 'VARCHAR',
        broker_name: 'VARCHAR', broker_id: 'BIGINT', state: 'VARCHAR', planned: 'BOOLEAN', event_at: 'VARCHAR'
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
SELECT
    e.*,
    watch_from,
    watch_to,
    CASE
        WHEN state IN ('UP', 'SUSPECT') THEN 'up'
        WHEN state IN ('OUT', 'GONE') OR (state = 'PROTECTED' AND reason = 'PROBE') THEN 'down'
        ELSE 'none'
    END AS opinion
FROM events e JOIN windows USING (node, boot_id)
WHERE broker_id IS NOT NULL AND state IS NOT NULL AND at_us <= watch_to;

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
SELECT
    cluster, broker_name, broker_id, at_us, node, boot_id, seq, gain_up, gain_down,
    CASE WHEN opinion = 'down' THEN planned END AS loss_planned
FROM changes
UNION ALL
SELECT
    cluster, broker_name, broker_id, at_us, '~', '', 9223372036854775807,
    -count(*) FILTER (held = 'up'), -count(*) FILTER (held = 'down'), NULL
FROM leaves
GROUP BY cluster, broker_name, broker_id, at_us;

CREATE TEMP TABLE intervals AS
WITH counted AS (
    SELECT
        *,
        sum(gain_up) OVER story AS up,
        sum(gain_down) OVER story AS down,
        last_value(loss_planned IGNORE NULLS) OVER (
            PARTITION BY cluster, broker_name, broker_id ORDER BY at_us, node, boot_id, seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS is_planned
    FROM steps
    WINDOW story AS (PARTITION BY cluster, broker_name, broker_id ORDER BY at_us, node, boot_id, seq)
),
seen AS (
    SELECT *, CASE WHEN up > 0 THEN 'up' WHEN down > 0 AND is_planned THEN 'left' WHEN down > 0 THEN 'down' END AS label
    FROM counted
),
begun AS (
    SELECT *
    FROM seen
    QUALIFY label IS DISTINCT FROM lag(label) OVER (
        PARTITION BY cluster, broker_name, broker_id ORDER BY at_us, node, boot_id, seq
    )
)
SELECT
    cluster, broker_name, broker_id, CASE label WHEN 'up' THEN 'up' ELSE 'down' END AS state, label = 'left' AS planned,
    at_us AS start_at, end_at
FROM (
    SELECT
        *,
        coalesce(
            lead(at_us) OVER (PARTITION BY cluster, broker_name, broker_id ORDER BY at_us, node, boot_id, seq), $day_end
        ) AS end_at
    FROM begun
)
WHERE label IS NOT NULL;
