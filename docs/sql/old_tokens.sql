-- Which share of each step's tokens was written by weights more than k versions older than those installed when its
-- batch was taken? Set k to the age that you call old.
SET VARIABLE k = 1;
WITH taken AS (SELECT step, version, unnest(groups).group_id AS group_id FROM steps),
     spans AS (SELECT group_id, unnest(spans) AS span FROM samples),
     tokens AS (
       SELECT step, version - span.version_lo AS age, span."end" - span.start AS tokens
       FROM taken JOIN spans USING (group_id)
     )
SELECT step, sum(tokens)::UBIGINT AS tokens,
       round(coalesce(sum(tokens) FILTER (age > getvariable('k')), 0) / sum(tokens), 4) AS older_than_k
FROM tokens
GROUP BY step
ORDER BY step;
