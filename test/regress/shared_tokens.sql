-- shared_tokens.sql - how much of what prompts share came from the prefix cache.

-- Tokens that two prompts begin with in common; the last one of a prompt is always computed.
CREATE FUNCTION common_tokens(a int[], b int[]) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	low int := 0;
	high int := least(cardinality(a), cardinality(b) - 1);
	middle int;
BEGIN
	WHILE low < high LOOP
		middle := (low + high + 1) / 2;
		IF a[1 : middle] = b[1 : middle] THEN
			low := middle;
		ELSE
			high := middle - 1;
		END IF;
	END LOOP;
	RETURN low;
END
$$;

-- Of the tokens that a query's prompts share with an earlier one, the part that came from the cache, by
-- EXPLAIN. The sum does not depend on which row is the earlier one: it is what sorted neighbours share, and
-- the token that begins every text. (The first one may find a little of what others have asked.)
CREATE FUNCTION cached_part(query text, prompts text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
	shareable bigint;
BEGIN
	EXECUTE 'WITH p AS MATERIALIZED (SELECT llm_tokenize(prompt) AS t FROM (' || prompts || ') q)
		SELECT sum(1 + common_tokens(before, t)) FROM (SELECT t, lag(t) OVER (ORDER BY t) AS before FROM p) s'
		INTO shareable;
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT json) ' || query INTO plan;
	RETURN (plan -> 0 -> 'Plan' ->> 'LLM Cached Tokens')::float8 / shareable;
END
$$;
