-- Which attempts did a prompt have, and how did each end? The query takes the prompt with the most attempts, the first
-- one in the log. For another prompt, put `WHERE dataset = … AND epoch = … AND prompt_row = …` into `asked`.
WITH asked AS (
  SELECT dataset, epoch, prompt_row FROM events WHERE kind = 'leased' ORDER BY attempt DESC, seq LIMIT 1
),
attempts AS (SELECT e.* FROM events e JOIN asked USING (dataset, epoch, prompt_row)),
taken AS (SELECT step, seq, unnest(groups).group_id AS group_id FROM events WHERE kind = 'batch_taken')
SELECT l.group_id, l.attempt, l.seq AS leased, c.seq AS completed, c.generated,
       CASE WHEN t.step IS NOT NULL THEN 'consumed' ELSE coalesce(x.reason, 'not settled') END AS disposition,
       t.step, x.gap, x.followup, x.retry_as
FROM attempts l
LEFT JOIN attempts c ON c.kind = 'completed' AND c.group_id = l.group_id
LEFT JOIN attempts x ON x.kind = 'excluded' AND x.group_id = l.group_id
LEFT JOIN taken t ON t.group_id = l.group_id
WHERE l.kind = 'leased'
ORDER BY l.attempt;
