-- The one number of a result that lists show: a metric object of it, as result_headline (eval/) picks it. NULL: none.

ALTER TABLE job ADD COLUMN headline TEXT CHECK (headline IS NULL OR (json_valid(headline) AND state = 'succeeded'));

-- of the results of before, which are of one task: perplexity at the longest length
UPDATE job SET headline = (
	SELECT metric.value FROM json_each(job.result, '$.metrics') AS metric
	WHERE metric.value ->> 'name' = 'ppl_token'
	ORDER BY metric.value ->> 'length' DESC LIMIT 1)
WHERE state = 'succeeded' AND task = 'pg19';
