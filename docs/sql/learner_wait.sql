-- How long did the idle learner wait for the batch of each step? The batch's enablers name the event that freed it.
WITH freed AS (
  SELECT seq, session, step, at_ns, unnest(enablers) AS enabler FROM events WHERE kind = 'batch_taken'
)
SELECT f.step, round((f.at_ns - max(e.at_ns)) / 1e6, 3) AS waited_ms, arg_max(e.kind, e.at_ns) AS freed_by
FROM freed f JOIN events e ON e.seq = f.enabler.seq AND e.session = f.session
WHERE f.enabler.cause = 'learner_free' AND f.enabler.moment = 'event'
GROUP BY f.seq, f.step, f.at_ns
ORDER BY f.step;
