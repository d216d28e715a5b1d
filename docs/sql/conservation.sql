-- Is every lease accounted for? leased = consumed + excluded + not settled, and `missing` must be 0. A group that is
-- not settled is in flight, in the buffer, or was left when the run ended.
WITH leased AS (SELECT DISTINCT group_id FROM events WHERE kind = 'leased'),
     consumed AS (SELECT unnest(groups).group_id AS group_id FROM events WHERE kind = 'batch_taken'),
     excluded AS (SELECT group_id FROM events WHERE kind = 'excluded'),
     numbers AS (
       SELECT (SELECT count(*) FROM leased) AS leased,
              (SELECT count(*) FROM consumed) AS consumed,
              (SELECT count(*) FROM excluded) AS excluded,
              (SELECT count(*) FROM leased WHERE group_id NOT IN (FROM consumed) AND group_id NOT IN (FROM excluded))
                AS not_settled
     )
SELECT *, leased - consumed - excluded - not_settled AS missing FROM numbers;
