-- bench_sql.sql - one round of bench_sql.py: every prompt of a file through SELECT, in a database of its own.
-- psql variables: rows, path (of the model), prompts (the file), tokens (of an answer). The last line is seconds and CPU seconds.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE EXTENSION llm_infer;
SELECT llm_model_register('bench', :'path') \g /dev/null
CREATE TABLE prompts (body text);
\set copy '\\copy prompts FROM ' :'prompts' ' (FORMAT csv)'
:copy
VACUUM ANALYZE prompts;
SELECT llm_generate('warm', max_tokens => 1) \g /dev/null
\ir marks.sql
SELECT mark('begin') \g /dev/null
SELECT count(llm_generate(body, max_tokens => :tokens, temperature => 0, options => '{"raw": true, "ignore_eos": true}')) AS answers FROM prompts \gset
SELECT mark('end') \g /dev/null
SELECT :answers, seconds, cpu * :rows / 1e6 FROM sums;
