-- Do excluded groups differ from those trained on, in length and in reward? Rows by disposition; the last two columns
-- compare each with all completed groups: a ratio of lengths, and a difference of rewards. Aborted samples were cut short
-- and have no reward, so their difference is unknown.
WITH settled AS (
  SELECT unnest(groups).group_id AS group_id, 'consumed' AS disposition FROM events WHERE kind = 'batch_taken'
  UNION ALL
  SELECT group_id, reason FROM events WHERE kind = 'excluded'
),
told AS (SELECT coalesce(disposition, 'not settled') AS disposition, g.* FROM groups g LEFT JOIN settled USING (group_id)),
everything AS (SELECT sum(generated) / sum(samples) AS length, avg(reward_mean) AS reward FROM groups)
SELECT disposition, count(*) AS groups,
       round(sum(generated) / sum(samples), 2) AS tokens_per_sample,
       round(avg(reward_mean), 4) AS reward,
       round(sum(generated) / sum(samples) / any_value(length), 3) AS length_ratio,
       round(avg(reward_mean) - any_value(everything.reward), 4) AS reward_difference
FROM told CROSS JOIN everything
GROUP BY disposition
ORDER BY disposition;
