-- before_upgrade.sql - what after_upgrade.sql finds again after pg_upgrade
CREATE ROLE analyst;
CREATE SCHEMA "Odd ""schema""";
CREATE EXTENSION llm_infer SCHEMA "Odd ""schema""";
SET search_path = "Odd ""schema""", public;
SELECT llm_model_register('echo', 'echo:', '{"context_length": 4000}');
GRANT USAGE ON FOREIGN SERVER echo TO analyst;
INSERT INTO llm.quotas VALUES ('analyst', 1000, '1 day', 3);
CREATE TABLE public.docs AS SELECT i, 'row ' || i AS body, llm_generate_result('row ' || i) AS r FROM generate_series(1, 2) i;
CREATE VIEW public.asked AS SELECT i, r, llm_generate(body) AS t FROM public.docs;
