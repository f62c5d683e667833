-- unicode.sql - text is valid in the database encoding, wherever it is cut
\set ECHO none
\getenv srcdir PG_ABS_SRCDIR
\set prepare :srcdir '/test/regress/prepare.sql'
\i :prepare

SELECT llm_generate('Repeat: 🦙🦙🦙三只小猫');
SELECT n, llm_generate('🦙三é', max_tokens => n), octet_length(llm_generate('🦙三é', max_tokens => n)),
	(llm_generate_result('🦙三é', max_tokens => n)).finish_reason
FROM generate_series(1, 9) n ORDER BY n;
SELECT n, t, octet_length(t)
FROM (SELECT n, llm_generate('三只小猫🦙', max_tokens => n) t FROM generate_series(1, 8) n ORDER BY n OFFSET 0) s;
SELECT bool_and(convert_from(convert_to(t, 'UTF8'), 'UTF8') = t)
FROM (SELECT llm_generate('🦙🦙🦙三只小猫', max_tokens => n) t FROM generate_series(0, 30) n OFFSET 0) s;

-- a stop string within a run of characters
SELECT llm_generate('三只小猫', stop => ARRAY['小']), llm_generate('🦙a🦙', stop => ARRAY['a🦙']);
SELECT llm_generate(E'tab\tline\nquote" back\\slash');
SELECT llm_generate(E'\u00e9') = E'\u00e9' AS composed, llm_generate(E'e\u0301') = E'e\u0301' AS decomposed;
SELECT llm_generate(E'\u200d\ufeff\u2028x') = E'\u200d\ufeff\u2028x' AS invisible;
SELECT llm_generate(U&'\+01F9D1\200D\+01F33E', max_tokens => 7) = U&'\+01F9D1\200D' AS joined;

-- arguments too
SELECT llm_generate('x', system_prompt => '三只小猫');
SELECT octet_length(llm_generate(repeat('é', 1000), max_tokens => 1001));
SELECT llm_model_register('modèle 🦙', 'echo:', '{"context_length": 128}');
SELECT llm_generate('by an odd name', 'modèle 🦙'), (llm_generate_result('x', 'modèle 🦙')).model;
SELECT error_of($$SELECT llm_generate(repeat('🦙', 50), 'modèle 🦙')$$);
SELECT error_of($$SELECT llm_generate('x', 'modèle 🐈')$$);
SELECT llm_model_drop('modèle 🦙');
SELECT error_of($$SELECT llm_generate('@error=schade🦙')$$);

-- clients of another encoding
SET client_encoding = 'LATIN1';
SELECT llm_generate('plain');
RESET client_encoding;
