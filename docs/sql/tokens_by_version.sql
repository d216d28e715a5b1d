-- Which weights wrote the tokens that each training step was made on?
-- One row a step and version. Where an engine could not tell its versions exactly, the oldest possible one counts.
WITH taken AS (SELECT step, unnest(groups).group_id AS group_id FROM steps),
     spans AS (SELECT group_id, unnest(spans) AS span FROM samples)
SELECT step, span.version_lo AS version, sum(span."end" - span.start)::UBIGINT AS tokens
FROM taken JOIN spans USING (group_id)
GROUP BY step, version
ORDER BY step, version;
