-- How does the effective sample size of the importance weights fall as the version gap grows? Steps with about the same
-- mean gap share a row; the learner reports the measure as `ess`, a share of the tokens.
WITH measured AS (
  SELECT step, list_avg(list_transform(groups, lambda batched: batched.gap)) AS gap,
         list_filter(metrics, lambda measure: measure.name = 'ess')[1].value AS ess
  FROM steps
)
SELECT round(gap * 2) / 2 AS mean_gap, count(*) AS steps, round(avg(ess), 4) AS ess, round(min(ess), 4) AS lowest
FROM measured
WHERE ess IS NOT NULL
GROUP BY mean_gap
ORDER BY mean_gap;
