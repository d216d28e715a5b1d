-- How were groups settled over time, and why? One row per five seconds of a session, disposition and reason.
WITH settled AS (
  SELECT session, at_ns, 'consumed' AS disposition, NULL AS reason, NULL AS followup, len(groups) AS settled
  FROM events WHERE kind = 'batch_taken'
  UNION ALL
  SELECT session, at_ns, 'excluded', coalesce(reason || ' ' || filter, reason), followup, 1
  FROM events WHERE kind = 'excluded'
)
SELECT session, at_ns // 5_000_000_000 * 5 AS from_second, disposition, reason, followup,
       sum(settled)::UBIGINT AS settled
FROM settled
GROUP BY ALL
ORDER BY ALL;
