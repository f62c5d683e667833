-- enrich_reorder.sql - reorder => true: which lines of a template go where, by which statistics, and what that saves
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare
SET client_min_messages = notice;

-- four brands per country, forty of them; the kind is long and has three values, independent of the others
CREATE TABLE goods (id int PRIMARY KEY, body text, brand text, country text, kind text, "odd {n" text, a text);
INSERT INTO goods SELECT i, 'goods ' || md5(i::text), 'brand ' || i % 40, 'country ' || i % 40 / 4, repeat('kind ', 12) || i % 3, i % 2, 'done' FROM generate_series(1, 1200) i;

-- no row is to be done here: the order alone
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{body}\n{kind}');
ANALYZE goods;
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'Rate this.\n\nText: {body}\nBrand: {brand} (by {brand})\nFrom: {country}\nKind {{\n}}\n{kind}\nRating:\n');
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{kind}\n{body}');
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{body}\n{brand} {odd {n}\n');
-- what determines what: a country follows from its brand, so the two have few combinations with the kind
CREATE STATISTICS goods_follow (dependencies) ON brand, country FROM goods;
ANALYZE goods;
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{body}\nBrand: {brand}\nFrom: {country}\n{kind}');
DROP STATISTICS goods_follow;
CREATE STATISTICS goods_together (ndistinct) ON brand, country, kind FROM goods;
ANALYZE goods;
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{body}\nBrand: {brand}\nFrom: {country}\n{kind}');

-- what cannot be moved
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'Rate: {body} of {brand}\nRating:');
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'Rate.');
SELECT string_agg('{brand}', E'\n') AS template FROM generate_series(1, 13) \gset
CALL llm_enrich('goods', 'a', reorder => true, prompt => :'template');
CALL llm_enrich('goods', 'a', reorder => true, expr => 'body');
\echo :LAST_ERROR_SQLSTATE
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{body}\n{boody}');
\echo :LAST_ERROR_SQLSTATE

-- statistics are those that the caller may see
CREATE ROLE regress_llm_reorder;
GRANT USAGE ON FOREIGN SERVER echo TO regress_llm_reorder;
GRANT SELECT (id, body, kind, a, ctid, xmin, tableoid), UPDATE (a) ON goods TO regress_llm_reorder;
SET ROLE regress_llm_reorder;
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{body}\n{kind}');
\set VERBOSITY terse
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'{body}\n{brand}');
\set VERBOSITY default
RESET ROLE;

-- partitions: those of the parent
CREATE TABLE parts (id int PRIMARY KEY, body text, kind text, a text) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (100) TO (2000);
INSERT INTO parts SELECT id, body, kind, a FROM goods;
ANALYZE parts;
CALL llm_enrich('parts', 'a', reorder => true, prompt => E'{body}\n{kind}');

-- the same rows both ways: much more is shared, and each row has its own answer
SET client_min_messages = warning;
UPDATE goods SET a = NULL;
SELECT cached_tokens AS c0, prompt_tokens AS p0 FROM llm.stat_engine \gset
CALL llm_enrich('goods', 'a', prompt => E'Plain.\n{body}\n{country}\n{brand}\n{kind}', temperature => 0, max_tokens => 200);
SELECT cached_tokens AS c1, prompt_tokens AS p1 FROM llm.stat_engine \gset
SELECT count(*) FROM goods WHERE a = concat_ws(E'\n', 'Plain.', body, country, brand, kind);
UPDATE goods SET a = NULL;
CALL llm_enrich('goods', 'a', reorder => true, prompt => E'Other.\n{body}\n{country}\n{brand}\n{kind}', temperature => 0, max_tokens => 200);
SELECT cached_tokens AS c2, prompt_tokens AS p2 FROM llm.stat_engine \gset
SELECT count(*) FROM goods WHERE a = concat_ws(E'\n', 'Other.', kind, country, brand, body);
SELECT :p2 - :p1 = :p1 - :p0 AS same_prompts, (:c1 - :c0) * 100 / (:p1 - :p0) < 45 AS little, (:c2 - :c1) * 100 / (:p2 - :p1) > 60 AS much;

SELECT engine_idle();
DROP TABLE goods, parts;
REVOKE USAGE ON FOREIGN SERVER echo FROM regress_llm_reorder;
DROP ROLE regress_llm_reorder;
