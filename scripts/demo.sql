\set QUIET on
\pset pager off
\pset footer off
\timing off
\echo
\echo ==> One extension, one model: a GGUF file below llm_infer.model_dir
\set ECHO queries
CREATE EXTENSION llm_infer;
SELECT llm_model_register('smollm2', 'SmolLM2-135M-Instruct.Q4_1.gguf');

\set ECHO none
\echo
\echo ==> A table of customer messages
CREATE TABLE messages (id int PRIMARY KEY, body text, reply text);
INSERT INTO messages (id, body)
SELECT row_number() OVER (), body
FROM unnest(ARRAY[
    'My parcel has not arrived and it is two weeks late.',
    'The blender stopped working after three days.',
    'How do I change my password?',
    'You charged my card twice for order 1188.',
    'I love the new coffee maker, thank you!',
    'Can I return shoes that I have worn once?',
    'The app crashes when I open my profile.',
    'Please cancel my subscription.',
    'Where is your shop in Berlin?',
    'The invoice shows the wrong address.',
    'My coat came with a torn sleeve.',
    'Do you deliver to Norway?',
    'The discount code SPRING does not work.',
    'Your support team was friendly and quick.',
    'I was sent a blue lamp instead of a green one.',
    'The video keeps buffering in the evening.',
    'Is the table made of real oak?',
    'Refund for order 2042 has not reached my bank.',
    'The courier left my package in the rain.',
    'How long is the warranty on laptops?',
    'I cannot log in since the last update.',
    'The soup bowls were broken on arrival.',
    'Can you gift-wrap the book?',
    'The heating pad smells of plastic.',
    'Thank you for the free sample.',
    'My order says delivered but nothing is here.',
    'Please send me the manual for the camera.',
    'The size chart for jackets is wrong.',
    'Two screws are missing from the shelf.',
    'When will the red bicycle be back in stock?']) AS body;
\set ECHO queries
SELECT id, body FROM messages ORDER BY id LIMIT 3;

\set ECHO none
\echo
\echo ==> One UPDATE drafts a reply to each; the rows are batched by the engine while the statement runs
\timing on
\set ECHO queries
UPDATE messages SET reply = llm_generate('Customer: ' || body,
    system_prompt => 'You are a support agent. Reply to the customer in one sentence.',
    max_tokens => 24, temperature => 0, stop => ARRAY[E'\n']);
\timing off
SELECT id, left(body, 42) AS body, left(reply, 72) AS reply FROM messages ORDER BY id LIMIT 10;

\set ECHO none
\echo (A model of 135 million parameters is quick, not clever: any larger GGUF of the family drops in.)
\set ECHO none
\echo
\echo ==> EXPLAIN shows what the model did
\set ECHO queries
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF)
SELECT id, llm_generate('Is this a complaint? Answer yes or no: ' || body, max_tokens => 3, temperature => 0)
FROM messages;

\set ECHO none
\echo
\echo ==> The engine: one process for the whole cluster
\x on
\set ECHO queries
SELECT state, device, isa, threads, kv_pages_total, kv_pages_free, steps, prompt_tokens, generated_tokens, requests
FROM llm.stat_engine;
SELECT round((prompt_tokens + generated_tokens) / extract(epoch FROM now() - started)) AS tokens_per_second_since_start
FROM llm.stat_engine;
