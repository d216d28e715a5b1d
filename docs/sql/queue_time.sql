-- How long did groups stay in the buffer, by disposition? Groups that were in it during a restart are left out, because
-- times can be compared only within a session.
WITH gone AS (
  SELECT session, unnest(groups).group_id AS group_id, unnest(groups).dequeued_ns AS dequeued_ns, 'consumed' AS disposition
  FROM events WHERE kind = 'batch_taken'
  UNION ALL
  SELECT session, group_id, dequeued_ns, reason FROM events WHERE kind = 'excluded' AND dequeued_ns IS NOT NULL
)
SELECT disposition, count(*) AS groups,
       round(avg(gone.dequeued_ns - admitted.at_ns) / 1e6, 3) AS mean_ms,
       round(median(gone.dequeued_ns - admitted.at_ns) / 1e6, 3) AS median_ms,
       round(max(gone.dequeued_ns - admitted.at_ns) / 1e6, 3) AS longest_ms
FROM gone JOIN events admitted
  ON admitted.kind = 'admitted' AND admitted.group_id = gone.group_id AND admitted.session = gone.session
GROUP BY disposition
ORDER BY disposition;
