-- How much of the version gap of consumed groups arose while they were generated, and how much while they waited in the
-- queue? The version installed when a group was completed parts the two. Mean over the groups of each step.
WITH taken AS (SELECT step, version AS installed, unnest(groups) AS taken FROM steps),
     completed AS (
       SELECT g.group_id, g.oldest_version, p.version AS completed_under
       FROM groups g ASOF JOIN publications p ON g.seq > p.seq
     )
SELECT step, count(*) AS groups, round(avg(taken.gap), 3) AS gap,
       round(avg(completed_under - oldest_version), 3) AS in_generation,
       round(avg(installed - completed_under), 3) AS in_queue
FROM taken JOIN completed ON completed.group_id = taken.group_id
GROUP BY step
ORDER BY step;
