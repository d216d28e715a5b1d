-- Was anything leased, completed, settled, published or trained twice? A sound run gives no rows.
WITH settled AS (
  SELECT unnest(groups).group_id AS group_id FROM events WHERE kind = 'batch_taken'
  UNION ALL
  SELECT group_id FROM events WHERE kind = 'excluded'
),
counted AS (
  SELECT 'completed' AS what, group_id AS name, count(*) AS times FROM groups GROUP BY ALL
  UNION ALL
  SELECT 'settled', group_id, count(*) FROM settled GROUP BY ALL
  UNION ALL
  SELECT 'trained', step::VARCHAR, count(*) FROM steps GROUP BY ALL
  UNION ALL
  SELECT 'published', version::VARCHAR, count(*) FROM publications WHERE kind = 'published' GROUP BY ALL
  UNION ALL
  SELECT 'event', seq::VARCHAR, count(*) FROM events GROUP BY ALL
)
SELECT what, name, times FROM counted WHERE times > 1 ORDER BY ALL;
