-- tokenize.sql - text to token ids and back
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

SELECT llm_tokenize('abc'), llm_tokenize(''), llm_tokenize(NULL);
SELECT llm_count_tokens('abc'), llm_count_tokens(''), llm_count_tokens(NULL);
SELECT llm_detokenize(ARRAY[97, 98, 99]), llm_detokenize('{}') = '' AS empty, llm_detokenize(NULL);
SELECT llm_tokenize('ä€😀'), llm_count_tokens('ä€😀');
SELECT llm_detokenize(llm_tokenize('ä€😀 三只小猫'));

-- text is text: it never makes a control token
SELECT llm_tokenize('<|im_start|>') = llm_tokenize('<|im' || '_start|>') AS same, array_length(llm_tokenize('<|im_start|>'), 1);
SELECT llm_detokenize(ARRAY[97, 258, 98, 257]);

-- an incomplete character at the end is dropped, one in the middle replaced
SELECT llm_detokenize(ARRAY[97, 226, 130]), llm_detokenize(ARRAY[226, 130, 172]);
SELECT llm_detokenize(ARRAY[97, 255, 98]), llm_detokenize(ARRAY[226, 130, 98]);
-- NUL never reaches a datum
SELECT llm_detokenize(ARRAY[97, 0, 98]);

SELECT error_of($$SELECT llm_detokenize(ARRAY[-1])$$);
SELECT error_of($$SELECT llm_detokenize(ARRAY[97, 320])$$);
SELECT error_of($$SELECT llm_detokenize(ARRAY[2147483647])$$);
SELECT error_of($$SELECT llm_detokenize(ARRAY[97, NULL])$$);
SELECT error_of($$SELECT llm_tokenize('x', 'nobody')$$);
SELECT llm_tokenize('x', 'echo'), llm_tokenize('x', NULL);

-- what the tokenizer says is what the engine counts
SELECT llm_count_tokens('hello world'), r.prompt_tokens FROM llm_generate_result('hello world', options => '{"raw": true}') r;
SELECT llm_count_tokens(repeat('x', 100000)), cardinality(llm_tokenize(repeat('ab', 50000)));
SELECT md5(llm_detokenize(llm_tokenize(repeat('three little cats 三只小猫 ', 2000)))) = md5(repeat('three little cats 三只小猫 ', 2000)) AS round_trip;

-- over a table
CREATE TEMP TABLE words AS SELECT id, repeat('w', id % 7) AS w FROM generate_series(1, 100) id;
SELECT sum(n) FROM (SELECT llm_count_tokens(w) n FROM words OFFSET 0) s;
SELECT count(*) FROM words WHERE llm_count_tokens(w) <> length(w);
SELECT id, llm_detokenize(llm_tokenize(w)) FROM words ORDER BY id LIMIT 3;
SELECT explain_of($$SELECT llm_detokenize(llm_tokenize(w)), llm_count_tokens(w) FROM words WHERE id <= 5$$);
