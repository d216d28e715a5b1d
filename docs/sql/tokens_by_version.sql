-- Which weights wrote the tokens of each training step?
-- One row per step and version. If an engine did not know its version exactly, the oldest possible version counts.
WITH taken AS (SELECT step, unnest(groups).group_id AS group_id FROM steps),
     spans AS (SELECT group_id, unnest(spans) AS span FROM samples)
SELECT step, span.version_lo AS version, sum(span."end" - span.start)::UBIGINT AS tokens
FROM taken JOIN spans USING (group_id)
GROUP BY step, version
ORDER BY step, version;
